"""Where sentences end, in western and in Chinese text."""

from __future__ import annotations

import re

# A point after these ends no sentence. Lower case; what ends in a point inside, such as "e.g", is found by its shape.
_ABBREVIATIONS = frozenset(
    {
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "st",
        "rev",
        "hon",
        "gen",
        "col",
        "capt",
        "lt",
        "sgt",
        "gov",
        "sen",
        "rep",
        "pres",
        "mt",
        "ft",
        "vs",
        "etc",
        "vol",
        "fig",
        "figs",
        "eq",
        "eqs",
        "p",
        "pp",
        "ch",
        "inc",
        "ltd",
        "co",
        "corp",
        "dept",
        "univ",
        "est",
        "approx",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
    }
)
_CLOSING = "\"'”’»)]}"
_CHINESE_CLOSING = "”’」』）》】"

_END = re.compile(
    rf"""
    (?P<western>(?<![.!?…])[.!?…]++[{re.escape(_CLOSING)}]*+)(?=\s+["'“‘«(\[{{]*[^\W_a-z]|\s+["“«]|\s*$)
    | [。！？；]+[{_CHINESE_CLOSING}]*
    """,
    re.VERBOSE,
)
_LONGEST_ABBREVIATION = 20
_LAST_WORD = re.compile(r"[^\s(\[{\"'“‘«]+$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph in their order, stripped; never an empty one, and no character but spaces is lost.

    A western sentence ends with a stop before a space and what may begin another; not after an abbreviation or an
    initial. A Chinese one ends with its full stop, exclamation mark, question mark or semicolon, space or not.
    """
    sentences = []
    begin = 0
    for match in _END.finditer(text):
        if match["western"] is not None and _is_abbreviation(
            text[max(begin, match.start() - _LONGEST_ABBREVIATION) : match.start()], stop=match["western"]
        ):
            continue
        sentences.append(text[begin : match.end()])
        begin = match.end()
    sentences.append(text[begin:])
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _is_abbreviation(before: str, *, stop: str) -> bool:
    word = _LAST_WORD.search(before)
    if stop != "." or word is None:
        return False
    return word[0].lower() in _ABBREVIATIONS or _INITIALS.fullmatch(word[0]) is not None
