from __future__ import annotations

import pytest

from service.engine.mask_text import fill, fill_all, join_pieces


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["pizza"], "pizza"),
        (["pi", "##zza"], "pizza"),
        (["new", "york"], "new york"),
        (["new", "yo", "##rk"], "new york"),
        (["中", "国"], "中国"),
        (["中", "##国"], "中国"),
        (["##ing"], "##ing"),
        (["𠀀", "b"], "𠀀b"),
    ],
)
def test_pieces_are_joined_as_text(pieces: list[str], text: str) -> None:
    assert join_pieces(pieces, prefix="##") == text


@pytest.mark.parametrize(
    ("text", "piece", "filled"),
    [
        ("The  [MASK], of\tFrance", "capital", "The  capital, of\tFrance"),
        ("walk [MASK] home", "##ing", "walking home"),
        ("walk[MASK] home", "##ing", "walking home"),
        ("un[MASK]able", "believ", "unbelievable"),
        ("北京是中国的[MASK]都。", "首", "北京是中国的首都。"),
        ("[MASK]", "##s", "s"),
    ],
)
def test_the_callers_own_text_is_kept(text: str, piece: str, filled: str) -> None:
    begin = text.index("[MASK]")
    assert fill(text, span=(begin, begin + 6), piece=piece, prefix="##") == filled


def test_other_masks_stay() -> None:
    assert fill("[MASK] a [MASK]", span=(9, 15), piece="b", prefix="##") == "[MASK] a b"


def test_the_prefix_is_the_vocabularys() -> None:
    assert join_pieces(["hel", "@@lo", "##x"], prefix="@@") == "hello ##x"
    assert fill("walk [MASK]", span=(5, 11), piece="@@ing", prefix="@@") == "walking"


@pytest.mark.parametrize(
    ("pieces", "filled"),
    [
        (["king", "tv", "x"], "The king, of tv x."),
        (["a longer one", "##b", "##c"], "The a longer one, ofbc."),
        (["##a", "b", "##c"], "Thea, of bc."),
    ],
)
def test_all_masks_are_filled_at_once(pieces: list[str], filled: str) -> None:
    text = "The [MASK], of [MASK] [MASK]."
    spans = [(4, 10), (15, 21), (22, 28)]
    assert fill_all(text, spans=spans, pieces=pieces, prefix="##") == filled
