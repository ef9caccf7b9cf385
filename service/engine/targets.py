"""The words that a caller wants scored at a mask."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core import BertTokenizer
from service.engine.mask_text import join_pieces
from service.errors import EmptyInput, InvalidInput, RequestError

FIELD = "parameters.targets"

# Longer than any word, and short enough that a request of many takes no time to look up.
LONGEST_CHARACTERS = 100

# Each size takes a sequence of its own, so this bounds what one text can cost.
MOST_PIECES = 16


@dataclass(frozen=True, slots=True)
class Target:
    """A word to score: the ids of its pieces, its text as the vocabulary spells it, its place in the request."""

    ids: tuple[int, ...]
    text: str
    place: str


class TargetLookup:
    """Finds targets, once for all texts of a request: these share one tuple, and the last result is kept.

    Threads may share one; where their requests alternate, targets are looked up again.
    """

    def __init__(self, tokenizer: BertTokenizer) -> None:
        self._tokenizer = tokenizer
        self._last: tuple[tuple[str, ...], tuple[Target, ...] | RequestError] | None = None

    def find(self, targets: tuple[str, ...], *, masks: int) -> tuple[Target, ...]:
        """The targets' pieces for a text with so many masks; see `look_up_targets`.

        Raises:
            EmptyInput, InvalidInput: as there, and for several pieces where the text has several masks.
        """
        last = self._last  # read once: another thread may put its own here
        if last is None or last[0] is not targets:
            last = self._last = (targets, self._outcome(targets))
        found = last[1]
        if isinstance(found, RequestError):
            raise found.with_traceback(None)
        if masks > 1:
            _require_single_pieces(found, masks=masks)
        return found

    def _outcome(self, targets: tuple[str, ...]) -> tuple[Target, ...] | RequestError:
        try:
            return look_up_targets(targets, tokenizer=self._tokenizer)
        except RequestError as error:
            return error


def look_up_targets(targets: tuple[str, ...], *, tokenizer: BertTokenizer) -> tuple[Target, ...]:
    """The targets' pieces, duplicates once, in the order given.

    A target that is a piece of the vocabulary is that piece; any other is split as text is.

    Raises:
        EmptyInput: no targets, or an empty one.
        InvalidInput: a target that is too long or that the vocabulary cannot spell, or a special token.
    """
    if not targets:
        raise EmptyInput("must name at least one word", field=FIELD)
    found: dict[tuple[int, ...], Target] = {}
    for number, word in enumerate(targets):
        place = f"{FIELD}[{number}]"
        ids = _ids_of(word, tokenizer=tokenizer, field=place)
        if ids not in found:
            found[ids] = Target(ids, _text(ids, tokenizer=tokenizer), place)
    return tuple(found.values())


def _require_single_pieces(targets: tuple[Target, ...], *, masks: int) -> None:
    for target in targets:
        if len(target.ids) > 1:
            raise InvalidInput(
                f"has {len(target.ids)} pieces, which can be scored only where the text has one mask; it has {masks}",
                field=target.place,
            )


def _text(ids: tuple[int, ...], *, tokenizer: BertTokenizer) -> str:
    return join_pieces((tokenizer.id_to_token(token) or "" for token in ids), prefix=tokenizer.continuation_prefix)


def _ids_of(word: str, *, tokenizer: BertTokenizer, field: str) -> tuple[int, ...]:
    if len(word) > LONGEST_CHARACTERS:
        raise InvalidInput(f"has {len(word)} characters; at most {LONGEST_CHARACTERS}", field=field)
    whole = tokenizer.token_to_id(word)
    try:
        ids = (whole,) if whole is not None else tuple(tokenizer.pieces(word))
    except ValueError as error:
        raise InvalidInput(str(error), field=field) from None
    if not ids:
        raise EmptyInput("is empty, or nothing is left of it after cleaning", field=field)
    if tokenizer.unk_id in ids:
        raise InvalidInput("the vocabulary cannot spell this word", field=field)
    if {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}.intersection(ids):
        raise InvalidInput("a special token cannot be a target", field=field)
    if len(ids) > MOST_PIECES:
        raise InvalidInput(f"has {len(ids)} pieces; at most {MOST_PIECES}", field=field)
    return ids
