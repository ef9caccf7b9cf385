"""The words that a caller wants scored at a mask."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core import BertTokenizer
from service.engine.mask_text import join_pieces
from service.errors import EmptyInput, InvalidInput

FIELD = "parameters.targets"


@dataclass(frozen=True, slots=True)
class Target:
    """A word to score: the ids of its pieces, and its text as the vocabulary spells it."""

    ids: tuple[int, ...]
    text: str


def look_up_targets(targets: tuple[str, ...], *, tokenizer: BertTokenizer, masks: int) -> tuple[Target, ...]:
    """The targets' pieces, duplicates once, in the order given.

    A target that is a piece of the vocabulary is that piece; any other is split as text is.

    Raises:
        EmptyInput: no targets, or an empty one.
        InvalidInput: a target that the vocabulary cannot spell, a special token, or several pieces where the text has
            several masks.
    """
    if not targets:
        raise EmptyInput("must name at least one word", field=FIELD)
    found: dict[tuple[int, ...], Target] = {}
    for number, word in enumerate(targets):
        ids = _ids_of(word, tokenizer=tokenizer, field=f"{FIELD}[{number}]", masks=masks)
        if ids not in found:
            found[ids] = Target(ids, _text(ids, tokenizer=tokenizer))
    return tuple(found.values())


def _text(ids: tuple[int, ...], *, tokenizer: BertTokenizer) -> str:
    return join_pieces((tokenizer.id_to_token(token) or "" for token in ids), prefix=tokenizer.continuation_prefix)


def _ids_of(word: str, *, tokenizer: BertTokenizer, field: str, masks: int) -> tuple[int, ...]:
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
    if len(ids) > 1 and masks > 1:
        raise InvalidInput(
            f"has {len(ids)} pieces, which can be scored only where the text has one mask; it has {masks}", field=field
        )
    return ids
