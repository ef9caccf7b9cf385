from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bert_core.heads import Heads
from service.engine.encoding import PREDICTION_CHARACTERS, EncodedTask
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.errors import EmptyInput, ForeignTokenIds, HeadMissing, InvalidInput
from service.tasks import Embed, FillMask, NextSentence, Pooling, TruncationSide
from tests.service.engine.tiny_engine import tiny_engine
from tests.tiny import TINY_VOCABULARY, tiny_config, tiny_model

LIMIT = 41
EMBED_LIMIT = 23


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(tmp_path_factory.mktemp("tiny"), sentence_files=SentenceFiles(max_length=EMBED_LIMIT))


def pieces(encoded: EncodedTask, *, sequence: int = 0) -> str:
    return " ".join(TINY_VOCABULARY[token] for token in encoded.sequences[sequence].ids)


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
        (Embed(text="the king"), 0),
        (NextSentence(text="the", text_pair="king"), 0),
    ],
)
def test_each_prediction_counts_with_the_whole_text(
    engine: Engine, task: FillMask | Embed | NextSentence, predictions: int
) -> None:
    assert isinstance(task.text, str)
    assert engine.encode(task).answer_characters == predictions * (len(task.text) + PREDICTION_CHARACTERS)


@pytest.mark.parametrize("text", ["no mask", "[mask]", "[ MASK ]", "<mask>", "[Mask]", "[MA\u200dSK]"])
def test_a_text_without_a_mask_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^inputs: no \[MASK\] in the text"):
        engine.encode(FillMask(text=text))


def test_a_long_text_is_refused_with_both_lengths(engine: Engine) -> None:
    fits = FillMask(text="the " * (LIMIT - 3) + "[MASK]")
    assert engine.encode(fits).tokens == LIMIT
    with pytest.raises(InvalidInput, match=f"^inputs: the text has {LIMIT + 1} tokens and the limit is {LIMIT}"):
        engine.encode(FillMask(text="the " + fits.text))
    with pytest.raises(InvalidInput, match=f"has {EMBED_LIMIT + 1} tokens and the limit is {EMBED_LIMIT}"):
        engine.encode(Embed(text="the " * (EMBED_LIMIT - 1)))
    with pytest.raises(InvalidInput, match=f"has {LIMIT + 1} tokens and the limit is {LIMIT}"):
        engine.encode(NextSentence(text="the " * 20, text_pair="the " * (LIMIT + 1 - 3 - 20)))


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


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u200b", "\u0e38"])
def test_a_text_with_nothing_in_it_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(EmptyInput, match="^inputs: "):
        engine.encode(Embed(text=text))
    with pytest.raises(EmptyInput, match="^inputs: "):
        engine.encode(FillMask(text=text))
    with pytest.raises(EmptyInput, match="^inputs: both halves are empty"):
        engine.encode(NextSentence(text=text, text_pair=text))
    assert pieces(engine.encode(NextSentence(text="king", text_pair=text))) == "[CLS] king [SEP] [SEP]"
    assert pieces(engine.encode(NextSentence(text=text, text_pair="king"))) == "[CLS] [SEP] king [SEP]"


@pytest.mark.parametrize(
    "task", [Embed(text="a\ud800"), FillMask(text="[MASK]\udfff"), NextSentence(text="a", text_pair="\ud800")]
)
def test_a_lone_surrogate_is_refused(engine: Engine, task: Embed | FillMask | NextSentence) -> None:
    with pytest.raises(InvalidInput, match=r"^inputs: .*lone surrogate"):
        engine.encode(task)


@pytest.mark.parametrize(
    ("pooling", "wanted"), [("cls", [0]), ("pooler", [0]), ("mean", None), ("max", None), (None, [0])]
)
def test_each_pooling_wants_its_rows(engine: Engine, pooling: Pooling | None, wanted: list[int] | None) -> None:
    assert engine.encode(Embed(text="king", pooling=pooling)).sequences[0].wanted == wanted


def test_ids_are_used_as_they_are(engine: Engine) -> None:
    ids = (2, 40, 3, 0, 41, 3)
    encoded = engine.encode(Embed(text=ids))
    assert encoded.sequences[0].ids == list(ids)
    assert encoded.sequences[0].segment_ids == [0] * 6


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ((2, 99, 3), "token ids must be from 0 to 98"),
        ((2, -1, 3), "token ids must be from 0 to 98"),
        ((40, 41), r"must be a whole sequence of this model, from \[CLS\] \(2\) to \[SEP\] \(3\)"),
        ((2, 40), "must be a whole sequence"),
        ((40, 3), "must be a whole sequence"),
        ((2,), "must be a whole sequence"),
        ((2, *[40] * EMBED_LIMIT, 3), f"has {EMBED_LIMIT + 2} tokens and the limit is {EMBED_LIMIT}"),
    ],
)
def test_ids_that_are_no_sequence_of_this_model_are_refused(engine: Engine, ids: tuple[int, ...], fault: str) -> None:
    with pytest.raises(InvalidInput, match=f"^inputs: .*{fault}"):
        engine.encode(Embed(text=ids))


@pytest.mark.parametrize(("ids", "foreign"), [((2, 99, 3), True), ((40, 41), True), ((2, *[40] * 90, 3), False)])
def test_ids_of_another_tokenizer_are_told_from_too_many(engine: Engine, ids: tuple[int, ...], foreign: bool) -> None:
    with pytest.raises(InvalidInput) as raised:
        engine.encode(Embed(text=ids))
    assert isinstance(raised.value, ForeignTokenIds) == foreign


def test_too_many_ids_are_cut_inside(engine: Engine) -> None:
    ids = (2, *range(10, 50), 3)
    assert engine.encode(Embed(text=ids, truncate="right")).sequences[0].ids == [2, *range(10, 31), 3]
    cut = engine.encode(Embed(text=ids, truncate="left"))
    assert cut.sequences[0].ids == [2, *range(29, 50), 3]
    assert cut.truncated


@pytest.mark.parametrize("dimensions", [0, 21, -3])
def test_dimensions_that_the_model_does_not_have_are_refused(engine: Engine, dimensions: int) -> None:
    with pytest.raises(InvalidInput, match="^dimensions: must be from 1 to 20"):
        engine.encode(Embed(text="king", dimensions=dimensions))


@pytest.mark.parametrize(
    ("heads", "task", "named"),
    [
        (Heads(mlm=False), FillMask(text="[MASK]"), "masked-LM head"),
        (Heads(nsp=False), NextSentence(text="a", text_pair="b"), "next-sentence head"),
        (Heads(nsp=False, pooler=False), NextSentence(text="a", text_pair="b"), "next-sentence head"),
        (Heads(nsp=False, pooler=False), Embed(text="a", pooling="pooler"), "pooler"),
    ],
)
def test_a_task_whose_head_is_missing_is_refused_by_name(
    tmp_path: Path, heads: Heads, task: FillMask | NextSentence | Embed, named: str
) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(), heads=heads))
    with pytest.raises(HeadMissing, match=f"this checkpoint holds no {named}"):
        engine.encode(task)


def test_a_model_with_one_segment_knows_no_pairs(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(type_vocab_size=1)))
    with pytest.raises(HeadMissing, match="type_vocab_size 1"):
        engine.encode(NextSentence(text="a", text_pair="b"))
    assert engine.info.capabilities == {"fill_mask": True, "next_sentence": False, "embed": True}


@pytest.mark.parametrize("changes", [{"pooler_type": "all_token_average"}])
def test_an_averaging_pooler_wants_all_rows(tmp_path: Path, changes: dict[str, Any]) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(**changes)))
    assert engine.encode(NextSentence(text="a", text_pair="b")).sequences[0].wanted is None
    assert engine.encode(Embed(text="a", pooling="pooler")).sequences[0].wanted is None


def test_segments_of_texts_and_pairs_are_the_models(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(pair_segment_ids=(1, 2))))
    assert engine.encode(NextSentence(text="a", text_pair="b c")).sequences[0].segment_ids == [1, 1, 1, 2, 2, 2]
    assert engine.encode(Embed(text="a")).sequences[0].segment_ids == [1, 1, 1]
    assert engine.encode(Embed(text=(2, 40, 3))).sequences[0].segment_ids == [1, 1, 1]


def test_a_prompt_goes_before_the_text(tmp_path: Path) -> None:
    prompts = {"query": "how is the ", "empty": ""}
    files = SentenceFiles(prompts=prompts, default_prompt_name="query")
    engine = tiny_engine(tmp_path, sentence_files=files)
    assert pieces(engine.encode(Embed(text="king"))) == "[CLS] how is the king [SEP]"
    assert pieces(engine.encode(Embed(text="king", prompt_name="query"))) == "[CLS] how is the king [SEP]"
    assert pieces(engine.encode(Embed(text="king", prompt_name="empty"))) == "[CLS] king [SEP]"
    assert pieces(engine.encode(Embed(text=(2, 40, 3)))).count(" ") == 2
    with pytest.raises(InvalidInput, match="^prompt_name: the model has no prompt of this name; it has: empty, query$"):
        engine.encode(Embed(text="king", prompt_name="passage"))
    with pytest.raises(InvalidInput, match="^prompt_name: a prompt goes before text"):
        engine.encode(Embed(text=(2, 40, 3), prompt_name="query"))
    with pytest.raises(EmptyInput, match="^inputs: "):
        engine.encode(Embed(text=" "))
