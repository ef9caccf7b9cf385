"""Tasks to token ids, ready to be put into a pass."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core import BertTokenizer
from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.tokenizer import Encoding, MaskSpanError, SequenceTooLongError
from bert_core.truncation import window_start
from service.engine.sentence_files import SentenceFiles
from service.engine.targets import Target, TargetLookup
from service.errors import EmptyInput, ForeignTokenIds, HeadMissing, InvalidInput
from service.tasks import DEFAULT_TOP_K, Embed, FillMask, ModelInfo, NextSentence, Pooling, Task, TruncationSide

ALL_ROWS = None
"""In `Sequence.wanted`: every token's last hidden state is asked for."""

PREDICTION_CHARACTERS = 400
"""What a prediction costs beside the text that it holds: its scores, its word and the names of its fields."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence of a pass: ids and segment ids, and which rows of the last layer are wanted."""

    ids: list[int]
    segment_ids: list[int]
    wanted: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedTask:
    """A task and its sequences. There are several only where targets of several pieces need more masks.

    targets: of a fill-mask task with targets, in the order given, without duplicates.
    """

    task: Task
    sequences: tuple[Sequence, ...]
    mask_spans: tuple[tuple[int, int], ...] = ()
    targets: tuple[Target, ...] | None = None
    pooling: Pooling | None = None
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the caller's own text, `[CLS]` and `[SEP]` counted."""
        return len(self.sequences[0].ids)

    @property
    def compute_tokens(self) -> int:
        """Tokens that go through the model."""
        return sum(len(sequence.ids) for sequence in self.sequences)

    @property
    def answer_characters(self) -> int:
        """Length of the predictions, about: each holds the whole text. 0 for tasks of fixed answers."""
        if not isinstance(self.task, FillMask):
            return 0
        if self.targets is None:
            predictions = self.task.top_k or DEFAULT_TOP_K
        else:
            predictions = min(self.task.top_k or len(self.targets), len(self.targets))
        return len(self.mask_spans) * predictions * (len(self.task.text) + PREDICTION_CHARACTERS)


class TaskEncoder:
    """Turns tasks into token ids. Any thread may call it.

    Args:
        tokenizer: of the checkpoint.
        config: the model's, for its limits.
        heads: which heads the checkpoint holds.
        info: the facts that requests are checked against.
        files: what the checkpoint's sentence-transformers files say, for its prompts.
    """

    def __init__(
        self, tokenizer: BertTokenizer, *, config: BertConfig, heads: Heads, info: ModelInfo, files: SentenceFiles
    ) -> None:
        self._tokenizer = tokenizer
        self._targets = TargetLookup(tokenizer)
        self._files = files
        self._config = config
        self._heads = heads
        self._info = info
        self._pooler_rows = ALL_ROWS if config.pooler_type == "all_token_average" else [0]

    def encode(self, task: Task) -> EncodedTask:
        """Encode one task.

        Raises:
            HeadMissing: the checkpoint lacks a head that the task needs.
            EmptyInput: nothing is left of the text after cleaning.
            InvalidInput: too long, no mask, a bad target, ids that are none of the model's, …
        """
        match task:
            case FillMask():
                return self._fill_mask(task)
            case NextSentence():
                return self._next_sentence(task)
            case Embed():
                return self._embed(task)

    def _fill_mask(self, task: FillMask) -> EncodedTask:
        if not self._heads.mlm:
            raise HeadMissing("this checkpoint holds no masked-LM head (cls.predictions), so it cannot fill masks")
        encoding = self._encode_text(task.text, limit=self._info.max_input_length, side=task.truncate, keep_masks=True)
        _require_text(encoding.ids)
        if not encoding.mask_positions:
            raise InvalidInput(
                f"no {self._tokenizer.mask_token} in the text; put one where a word is to be predicted", field="inputs"
            )
        spans = tuple(encoding.offsets[position] for position in encoding.mask_positions)
        sequences = [_sequence(encoding, wanted=encoding.mask_positions)]
        targets = None
        if task.targets is not None:
            targets = self._targets.find(task.targets, masks=len(spans))
            first_of_size = {len(target.ids): target for target in reversed(targets) if len(target.ids) > 1}
            sequences += [
                self._widened(encoding, target=first_of_size[size], side=task.truncate)
                for size in sorted(first_of_size)
            ]
        return EncodedTask(
            task=task,
            sequences=tuple(sequences),
            mask_spans=spans,
            targets=targets,
            truncated=encoding.truncated,
        )

    def _widened(self, encoding: Encoding, *, target: Target, side: TruncationSide | None) -> Sequence:
        """An encoded text with its one mask replaced by one for each piece of the target, cut as texts are."""
        masks, limit = len(target.ids), self._info.max_input_length
        [place] = encoding.mask_positions
        ids = [*encoding.ids[:place], *[self._tokenizer.mask_id] * masks, *encoding.ids[place + 1 :]]
        if len(ids) > limit:
            room = limit - 2
            if side is None or masks > room:
                raise InvalidInput(
                    f"has {masks} pieces, with which the text has {len(ids)} tokens and the limit is {limit}, "
                    "[CLS] and [SEP] counted; shorten the text" + (" or send truncate: true" if masks <= room else ""),
                    field=target.place,
                )
            start = window_start(len(ids) - 2, room=room, side=side, masks=(place - 1, place + masks - 2))
            ids = [ids[0], *ids[1 + start : 1 + start + room], ids[-1]]
            place -= start
        return Sequence(ids, [encoding.segment_ids[0]] * len(ids), list(range(place, place + masks)))

    def _next_sentence(self, task: NextSentence) -> EncodedTask:
        if not self._heads.nsp:
            raise HeadMissing("this checkpoint holds no next-sentence head (cls.seq_relationship)")
        if not self._config.has_pair_segments:
            raise HeadMissing("this checkpoint has one segment embedding (type_vocab_size 1), so it knows no pairs")
        try:
            encoding = self._tokenizer.encode_pair(
                task.text, task.text_pair, max_length=self._info.max_input_length, truncate=task.truncate
            )
        except SequenceTooLongError as error:
            raise _too_long(error, what="pair") from None
        except ValueError as error:
            raise InvalidInput(str(error), field="inputs") from None
        if len(encoding.ids) == 3:  # [CLS] [SEP] [SEP]
            raise EmptyInput("both halves are empty; at least one must hold text", field="inputs")
        return EncodedTask(
            task=task,
            sequences=(_sequence(encoding, wanted=self._pooler_rows),),
            truncated=encoding.truncated,
        )

    def _embed(self, task: Embed) -> EncodedTask:
        pooling = task.pooling or self._info.pooling
        if pooling == "pooler" and not self._heads.pooler:
            raise HeadMissing("this checkpoint holds no pooler; use pooling cls, mean or max")
        self._check_dimensions(task)
        limit = self._info.max_embed_length
        if isinstance(task.text, str):
            prompt = self._prompt(task.prompt_name)
            encoding = self._encode_text(prompt + task.text, limit=limit, side=task.truncate, keep_masks=False)
            _require_text(encoding.ids, beside=len(self._tokenizer.pieces(prompt)) if prompt else 0)
            ids, segment_ids, truncated = encoding.ids, encoding.segment_ids, encoding.truncated
        else:
            if task.prompt_name is not None:
                raise InvalidInput("a prompt goes before text, not before token ids", field="prompt_name")
            ids, truncated = self._checked_ids(task.text, limit=limit, side=task.truncate)
            segment_ids = [self._config.pair_segment_ids[0]] * len(ids)
            _require_text(ids)
        wanted = {"cls": [0], "pooler": self._pooler_rows}.get(pooling, ALL_ROWS)
        return EncodedTask(
            task=task, sequences=(Sequence(ids, segment_ids, wanted),), pooling=pooling, truncated=truncated
        )

    def _prompt(self, name: str | None) -> str:
        name = name or self._files.default_prompt_name
        if name is None:
            return ""
        if name not in self._files.prompts:
            known = ", ".join(sorted(self._files.prompts)) or "none"
            raise InvalidInput(f"the model has no prompt of this name; it has: {known}", field="prompt_name")
        return self._files.prompts[name]

    def _check_dimensions(self, task: Embed) -> None:
        width = self._config.hidden_size
        if task.dimensions is not None and not 1 <= task.dimensions <= width:
            raise InvalidInput(f"must be from 1 to {width}, the width of the model", field="dimensions")

    def _encode_text(self, text: str, *, limit: int, side: TruncationSide | None, keep_masks: bool) -> Encoding:
        try:
            return self._tokenizer.encode(text, max_length=limit, truncate=side, keep_masks=keep_masks)
        except SequenceTooLongError as error:
            raise _too_long(error) from None
        except MaskSpanError:
            raise InvalidInput(
                f"the masks lie further apart than the limit of {limit} tokens, so no cut keeps them all",
                field="inputs",
            ) from None
        except ValueError as error:
            raise InvalidInput(str(error), field="inputs") from None

    def _checked_ids(self, ids: tuple[int, ...], *, limit: int, side: TruncationSide | None) -> tuple[list[int], bool]:
        tokenizer = self._tokenizer
        highest = tokenizer.vocab_size - 1
        if any(not 0 <= token <= highest for token in ids):
            raise ForeignTokenIds(f"token ids must be from 0 to {highest}, the ids of this model", field="inputs")
        if len(ids) < 2 or ids[0] != tokenizer.cls_id or ids[-1] != tokenizer.sep_id:
            raise ForeignTokenIds(
                f"token ids must be a whole sequence of this model, from [CLS] ({tokenizer.cls_id}) to [SEP] "
                f"({tokenizer.sep_id}); ids of another tokenizer mean nothing here, send text instead",
                field="inputs",
            )
        if len(ids) <= limit:
            return list(ids), False
        if side is None:
            raise _too_long(SequenceTooLongError(length=len(ids), limit=limit))
        inner = ids[1:-1]
        kept = inner[: limit - 2] if side == "right" else inner[len(inner) - (limit - 2) :]
        return [ids[0], *kept, ids[-1]], True


def _sequence(encoding: Encoding, *, wanted: list[int] | None) -> Sequence:
    return Sequence(encoding.ids, encoding.segment_ids, wanted)


def _require_text(ids: list[int], *, beside: int = 0) -> None:
    if len(ids) <= 2 + beside:  # [CLS], [SEP] and the prompt
        raise EmptyInput("the text is empty, or nothing is left of it after cleaning", field="inputs")


def _too_long(error: SequenceTooLongError, *, what: str = "text") -> InvalidInput:
    return InvalidInput(
        f"the {what} has {error.length} tokens and the limit is {error.limit}, [CLS] and [SEP] counted; "
        "shorten it or send truncate: true",
        field="inputs",
    )
