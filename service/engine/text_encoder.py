"""Texts, prompts and token ids of requests to sequences of the model."""

from __future__ import annotations

from bert_core import BertTokenizer
from bert_core.config import BertConfig
from bert_core.tokenizer import Encoding, MaskSpanError, SequenceTooLongError
from service.engine.encoding import Sequence
from service.engine.sentence_files import SentenceFiles
from service.errors import EmptyInput, ForeignTokenIds, InvalidInput
from service.tasks import Embed, EmbedAll, EmbedSparse, ModelInfo, TruncationSide


class TextEncoder:
    """Encodes single texts. Any thread may call it; all methods raise `InvalidInput` or `EmptyInput`.

    Args:
        tokenizer: of the checkpoint.
        config: the model's.
        info: the facts that requests are checked against.
        files: what the checkpoint's sentence-transformers files say, for its prompts.
    """

    def __init__(self, tokenizer: BertTokenizer, *, config: BertConfig, info: ModelInfo, files: SentenceFiles) -> None:
        self._tokenizer = tokenizer
        self._segment_id = config.pair_segment_ids[0]
        self._info = info
        self._files = files

    def encode(self, text: str, *, limit: int, side: TruncationSide | None, masks: bool = False) -> Encoding:
        """`[CLS] text [SEP]`, at most `limit` tokens; with `masks` none of them is cut off, and there are offsets."""
        try:
            return self._tokenizer.encode(text, max_length=limit, truncate=side, keep_masks=masks, offsets=masks)
        except SequenceTooLongError as error:
            raise too_long(error) from None
        except MaskSpanError:
            raise InvalidInput(
                f"the masks lie further apart than the limit of {limit} tokens, so no cut keeps them all",
                field="inputs",
            ) from None
        except ValueError as error:
            raise InvalidInput(str(error), field="inputs") from None

    def prompt(self, name: str | None) -> str:
        """What goes before a text: the prompt of this name, or the default one."""
        name = name or self._files.default_prompt_name
        if name is None:
            return ""
        if name not in self._files.prompts:
            known = ", ".join(sorted(self._files.prompts)) or "none"
            raise InvalidInput(f"the model has no prompt of this name; it has: {known}", field="prompt_name")
        return self._files.prompts[name]

    def embedding_sequence(
        self, task: Embed | EmbedAll | EmbedSparse, *, wanted: list[int] | None
    ) -> tuple[Sequence, bool]:
        """The sequence of a text or of token ids, and whether it was cut."""
        limit = self._info.max_embed_length
        if isinstance(task.text, str):
            prompt = self.prompt(task.prompt_name)
            encoding = self.encode(prompt + task.text, limit=limit, side=task.truncate)
            require_text(encoding.ids, beside=len(self._tokenizer.pieces(prompt)) if prompt else 0)
            return Sequence(encoding.ids, encoding.segment_ids, wanted), encoding.truncated
        if task.prompt_name is not None:
            raise InvalidInput("a prompt goes before text, not before token ids", field="prompt_name")
        ids, truncated = self._checked_ids(task.text, limit=limit, side=task.truncate)
        require_text(ids)
        return Sequence(ids, [self._segment_id] * len(ids), wanted), truncated

    def require_known(self, ids: tuple[int, ...]) -> None:
        """Refuse ids that the vocabulary does not reach."""
        highest = self._tokenizer.vocab_size - 1
        if any(not 0 <= token <= highest for token in ids):
            raise ForeignTokenIds(f"token ids must be from 0 to {highest}, the ids of this model", field="inputs")

    def _checked_ids(self, ids: tuple[int, ...], *, limit: int, side: TruncationSide | None) -> tuple[list[int], bool]:
        tokenizer = self._tokenizer
        self.require_known(ids)
        if len(ids) < 2 or ids[0] != tokenizer.cls_id or ids[-1] != tokenizer.sep_id:
            raise ForeignTokenIds(
                f"token ids must be a whole sequence of this model, from [CLS] ({tokenizer.cls_id}) to [SEP] "
                f"({tokenizer.sep_id}); ids of another tokenizer mean nothing here, send text instead",
                field="inputs",
            )
        if len(ids) <= limit:
            return list(ids), False
        if side is None:
            raise too_long(SequenceTooLongError(length=len(ids), limit=limit))
        inner = ids[1:-1]
        kept = inner[: limit - 2] if side == "right" else inner[len(inner) - (limit - 2) :]
        return [ids[0], *kept, ids[-1]], True


def require_text(ids: list[int], *, beside: int = 0) -> None:
    """Refuse a sequence that holds nothing but special tokens, and `beside` of a prompt."""
    if len(ids) <= 2 + beside:  # [CLS], [SEP] and the prompt
        raise EmptyInput("the text is empty, or nothing is left of it after cleaning", field="inputs")


def too_long(error: SequenceTooLongError, *, what: str = "text") -> InvalidInput:
    """The refusal of what could have been cut."""
    return InvalidInput(
        f"the {what} has {error.length} tokens and the limit is {error.limit}, [CLS] and [SEP] counted; "
        "shorten it or send truncate: true",
        field="inputs",
    )
