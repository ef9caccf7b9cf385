from __future__ import annotations

import pytest

from service.engine.engine import Engine
from service.engine.mask_encoder import MOST_JOINT_CANDIDATES, PREDICTION_CHARACTERS
from service.errors import InvalidInput
from service.tasks import FilledText, FillMask, FillNextMask, TruncationSide
from tests.service.engine.encoded import LIMIT, pieces
from tests.service.engine.tiny_engine import tiny_engine
from tests.tiny import TINY_VOCABULARY


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(tmp_path_factory.mktemp("tiny"))


def test_only_mask_rows_are_wanted_of_a_text_with_masks(engine: Engine) -> None:
    encoded = engine.encode(FillMask(text="the [MASK] of[MASK]"))
    assert pieces(encoded) == "[CLS] the [MASK] of [MASK] [SEP]"
    assert encoded.sequences[0].wanted == [2, 4]
    assert encoded.mask_spans == ((4, 10), (13, 19))
    assert (encoded.tokens, encoded.compute_tokens, encoded.truncated) == (6, 6, False)


def test_targets_of_each_size_take_one_more_sequence(engine: Engine) -> None:
    encoded = engine.encode(FillMask(text="The [MASK]!", targets=("king", "xy", "zw", "abc")))
    assert [pieces(encoded, sequence=number) for number in range(3)] == [
        "[CLS] the [MASK] ! [SEP]",
        "[CLS] the [MASK] [MASK] ! [SEP]",
        "[CLS] the [MASK] [MASK] [MASK] ! [SEP]",
    ]
    assert [sequence.wanted for sequence in encoded.sequences] == [[2], [2, 3], [2, 3, 4]]
    assert (encoded.tokens, encoded.compute_tokens) == (5, 5 + 6 + 7)


def test_a_target_that_makes_the_text_too_long_is_named(engine: Engine) -> None:
    text = "the " * (LIMIT - 4) + "[MASK]"  # one token below the limit
    assert engine.encode(FillMask(text=text, targets=("king", "xy"))).compute_tokens == LIMIT - 1 + LIMIT
    with pytest.raises(InvalidInput) as caught:
        engine.encode(FillMask(text=text, targets=("king", "xy", "abc", "abd")))
    assert str(caught.value) == (
        f"parameters.targets[2]: has 3 pieces, with which the text has {LIMIT + 1} tokens and the limit is {LIMIT}, "
        "[CLS] and [SEP] counted; shorten the text or send truncate: true"
    )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("before", [0, 3, LIMIT - 3, LIMIT - 4, 20, 57, 60])
def test_a_widened_text_is_cut_as_if_its_masks_had_been_sent(engine: Engine, before: int, side: TruncationSide) -> None:
    def text(masks: int) -> str:
        return "the " * before + "[MASK]" * masks + " of" * (60 - before)

    encoded = engine.encode(FillMask(text=text(1), targets=("xyz",), truncate=side))
    sent = engine.encode(FillMask(text=text(3), truncate=side))
    assert encoded.sequences[1] == sent.sequences[0]


@pytest.mark.parametrize(
    ("task", "predictions"),
    [
        (FillMask(text="the [MASK]"), 5),
        (FillMask(text="[MASK] [MASK]", top_k=7), 14),
        (FillMask(text="the [MASK]", targets=("king", "xy", "King", "of")), 3),
        (FillMask(text="[MASK] is [MASK]", targets=("king", "of", "in"), top_k=2), 4),
        (FillMask(text="[MASK]", targets=("king", "of"), top_k=9), 2),
    ],
)
def test_each_prediction_counts_with_the_whole_text(engine: Engine, task: FillMask, predictions: int) -> None:
    assert engine.encode(task).answer_characters == predictions * (len(task.text) + PREDICTION_CHARACTERS)


@pytest.mark.parametrize("text", ["no mask", "[mask]", "[ MASK ]", "<mask>", "[Mask]", "[MA\u200dSK]"])
def test_a_text_without_a_mask_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^inputs: no \[MASK\] in the text"):
        engine.encode(FillMask(text=text))


@pytest.mark.parametrize("text", ["[MASK] " + "the " * 60, "the " * 60 + "[MASK]", "the " * 30 + "[MASK]" + " of" * 30])
def test_a_cut_text_keeps_its_mask(engine: Engine, text: str) -> None:
    encoded = engine.encode(FillMask(text=text, truncate="right"))
    assert encoded.tokens == LIMIT
    assert encoded.truncated
    assert encoded.sequences[0].wanted is not None
    (position,) = encoded.sequences[0].wanted
    assert TINY_VOCABULARY[encoded.sequences[0].ids[position]] == "[MASK]"
    ((begin, end),) = encoded.mask_spans
    assert text[begin:end] == "[MASK]"


def test_masks_that_no_cut_can_hold_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match=f"^inputs: the masks lie further apart than the limit of {LIMIT} tokens"):
        engine.encode(FillMask(text="[MASK] " + "the " * 60 + "[MASK]", truncate="left"))


THREE = "the [MASK] of [MASK] is[MASK]."


def test_filled_masks_stand_in_the_sequence_and_the_others_are_wanted(engine: Engine) -> None:
    king, tv = TINY_VOCABULARY.index("king"), TINY_VOCABULARY.index("tv")
    first = engine.encode(FillNextMask(text=THREE))
    assert pieces(first) == "[CLS] the [MASK] of [MASK] is [MASK] . [SEP]"
    assert first.sequences[0].wanted == [2, 4, 6]
    assert first.answer_characters == 5 * (len(THREE) + 3 * PREDICTION_CHARACTERS)
    second = engine.encode(FillNextMask(text=THREE, filled=(None, tv, None)))
    assert pieces(second) == "[CLS] the [MASK] of tv is [MASK] . [SEP]"
    assert second.sequences[0].wanted == [2, 6]
    third = engine.encode(FillNextMask(text=THREE, filled=(king, tv, None)))
    assert third.sequences[0].wanted == [6]
    assert (third.compute_tokens, third.answer_characters, third.result) == (9, 0, None)


def test_a_text_with_all_masks_filled_takes_no_pass(engine: Engine) -> None:
    filled = tuple(TINY_VOCABULARY.index(piece) for piece in ("king", "tv", "##x"))
    encoded = engine.encode(FillNextMask(text=THREE.upper(), filled=filled))
    assert encoded.result == FilledText(
        sequence="THE king OF tv ISx.", token_strs=("king", "tv", "##x"), tokens=9, truncated=False
    )
    assert encoded.compute_tokens == 0
    assert encoded.answer_characters >= len(THREE)


def test_a_cut_text_is_filled_where_it_was_cut(engine: Engine) -> None:
    text = "of " * 60 + "[MASK] the [MASK]"
    king = TINY_VOCABULARY.index("king")
    step = engine.encode(FillNextMask(text=text, filled=(king, None), truncate="right"))
    assert (step.tokens, step.truncated) == (LIMIT, True)
    assert pieces(step).endswith("of king the [MASK] [SEP]")
    done = engine.encode(FillNextMask(text=text, filled=(king, king), truncate="right"))
    assert done.result == FilledText(
        sequence=text.replace("[MASK]", "king"), token_strs=("king", "king"), tokens=LIMIT, truncated=True
    )


def test_the_work_of_filling_masks_jointly_is_bounded(engine: Engine) -> None:
    most = MOST_JOINT_CANDIDATES // 2
    assert engine.encode(FillNextMask(text="[MASK] [MASK]", top_k=most)).compute_tokens == 4
    with pytest.raises(InvalidInput, match=f"^inputs: the text has 2 masks and top_k is {most + 1}: .* 64 at most"):
        engine.encode(FillNextMask(text="[MASK] [MASK]", top_k=most + 1))
