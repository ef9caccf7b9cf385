"""Texts with masks to sequences, for filling each mask by itself or all of them jointly."""

from __future__ import annotations

from bert_core import BertTokenizer
from bert_core.tokenizer import Encoding
from bert_core.truncation import window_start
from service.engine.encoding import EncodedTask, Sequence
from service.engine.mask_text import fill_all
from service.engine.targets import Target, TargetLookup
from service.engine.text_encoder import TextEncoder, require_text
from service.errors import InvalidInput
from service.tasks import DEFAULT_TOP_K, FilledText, FillMask, FillNextMask, TruncationSide

PREDICTION_CHARACTERS = 400
"""What a prediction costs beside the text that it holds: its scores, its word and the names of its fields."""

MOST_JOINT_CANDIDATES = 64
"""Masks of a text times sequences that are followed: how many sequences joint filling passes through the model."""


class MaskEncoder:
    """Encodes tasks that fill masks. Any thread may call it; both methods raise `InvalidInput` or `EmptyInput`.

    Args:
        tokenizer: of the checkpoint.
        texts: for the texts.
        limit: tokens of the longest sequence.
    """

    def __init__(self, tokenizer: BertTokenizer, *, texts: TextEncoder, limit: int) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._limit = limit
        self._targets = TargetLookup(tokenizer)

    def fill_mask(self, task: FillMask) -> EncodedTask:
        """One sequence, and one more for each size of targets of several pieces."""
        encoding = self._masked_text(task.text, side=task.truncate)
        spans = tuple(encoding.offsets[position] for position in encoding.mask_positions)
        sequences = [Sequence(encoding.ids, encoding.segment_ids, encoding.mask_positions)]
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
            answer_characters=len(spans)
            * _predictions(task, targets=targets)
            * (len(task.text) + PREDICTION_CHARACTERS),
        )

    def fill_next_mask(self, task: FillNextMask) -> EncodedTask:
        """One sequence with the filled masks in it; the result if all are filled."""
        encoding = task.encoding or self._masked_text(task.text, side=task.truncate)
        assert isinstance(encoding, Encoding)
        places, masks = encoding.mask_positions, len(encoding.mask_positions)
        if masks * task.top_k > MOST_JOINT_CANDIDATES:
            raise InvalidInput(
                f"the text has {masks} masks and top_k is {task.top_k}: with the joint strategy they may be "
                f"{MOST_JOINT_CANDIDATES} at most, multiplied; ask for fewer predictions or send fewer masks",
                field="inputs",
            )
        answer_characters = len(task.text) + masks * PREDICTION_CHARACTERS
        filled = task.filling(masks=masks)
        assert len(filled) == masks
        if None not in filled:
            return EncodedTask(
                task=task,
                sequences=(),
                answer_characters=answer_characters,
                result=self._filled_text(task, encoding),
            )
        ids = list(encoding.ids)
        for place, token in zip(places, filled, strict=True):
            if token is not None:
                ids[place] = token
        wanted = [place for place, token in zip(places, filled, strict=True) if token is None]
        return EncodedTask(
            task=task,
            sequences=(Sequence(ids, encoding.segment_ids, wanted),),
            mask_spans=tuple(encoding.offsets[place] for place in places),
            truncated=encoding.truncated,
            # Refused in the first step if the last one's answer would be too long: it is made of this text too.
            answer_characters=0 if task.filled else task.top_k * answer_characters,
            encoding=encoding,
        )

    def _filled_text(self, task: FillNextMask, encoding: Encoding) -> FilledText:
        pieces = tuple(self._tokenizer.id_to_token(token) or "" for token in task.filled if token is not None)
        spans = [encoding.offsets[place] for place in encoding.mask_positions]
        text = fill_all(task.text, spans=spans, pieces=pieces, prefix=self._tokenizer.continuation_prefix)
        return FilledText(sequence=text, token_strs=pieces, tokens=len(encoding.ids), truncated=encoding.truncated)

    def _masked_text(self, text: str, *, side: TruncationSide | None) -> Encoding:
        encoding = self._texts.encode(text, limit=self._limit, side=side, masks=True)
        require_text(encoding.ids)
        if not encoding.mask_positions:
            raise InvalidInput(
                f"no {self._tokenizer.mask_token} in the text; put one where a word is to be predicted", field="inputs"
            )
        return encoding

    def _widened(self, encoding: Encoding, *, target: Target, side: TruncationSide | None) -> Sequence:
        """An encoded text with its one mask replaced by one for each piece of the target, cut as texts are."""
        masks, limit = len(target.ids), self._limit
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


def _predictions(task: FillMask, *, targets: tuple[Target, ...] | None) -> int:
    """How many for each mask."""
    if targets is None:
        return task.top_k or DEFAULT_TOP_K
    return min(task.top_k or len(targets), len(targets))
