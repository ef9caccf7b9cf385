from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bert_core import BertTokenizer
from bert_core.heads import Heads
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.engine.task_encoder import NUMBER_CHARACTERS, TOKEN_CHARACTERS, WEIGHT_CHARACTERS
from service.errors import EmptyInput, HeadMissing, InvalidInput
from service.tasks import (
    Decode,
    DecodeResult,
    Embed,
    EmbedAll,
    EmbedSparse,
    FillMask,
    FillNextMask,
    NextSentence,
    Pooling,
    Task,
    Tokenize,
    TokenizeResult,
    TruncationSide,
)
from tests.service.engine.encoded import EMBED_LIMIT, LIMIT, pieces
from tests.service.engine.tiny_engine import tiny_engine
from tests.tiny import TINY_VOCABULARY, tiny_config, tiny_model


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(tmp_path_factory.mktemp("tiny"), sentence_files=SentenceFiles(max_length=EMBED_LIMIT))


def test_a_long_text_is_refused_with_both_lengths(engine: Engine) -> None:
    fits = FillMask(text="the " * (LIMIT - 3) + "[MASK]")
    assert engine.encode(fits).tokens == LIMIT
    with pytest.raises(InvalidInput, match=f"^inputs: the text has {LIMIT + 1} tokens and the limit is {LIMIT}"):
        engine.encode(FillMask(text="the " + fits.text))
    with pytest.raises(InvalidInput, match=f"has {EMBED_LIMIT + 1} tokens and the limit is {EMBED_LIMIT}"):
        engine.encode(Embed(text="the " * (EMBED_LIMIT - 1)))
    with pytest.raises(InvalidInput, match=f"has {LIMIT + 1} tokens and the limit is {LIMIT}"):
        engine.encode(NextSentence(text="the " * 20, text_pair="the " * (LIMIT + 1 - 3 - 20)))


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


@pytest.mark.parametrize("dimensions", [0, 21, -3])
def test_dimensions_that_the_model_does_not_have_are_refused(engine: Engine, dimensions: int) -> None:
    with pytest.raises(InvalidInput, match="^dimensions: must be from 1 to 20"):
        engine.encode(Embed(text="king", dimensions=dimensions))


@pytest.mark.parametrize(
    ("heads", "task", "named"),
    [
        (Heads(mlm=False), FillMask(text="[MASK]"), "masked-LM head"),
        (Heads(mlm=False), FillNextMask(text="[MASK]"), "masked-LM head"),
        (Heads(mlm=False), EmbedSparse(text="a"), "masked-LM head"),
        (Heads(nsp=False), NextSentence(text="a", text_pair="b"), "next-sentence head"),
        (Heads(nsp=False, pooler=False), NextSentence(text="a", text_pair="b"), "next-sentence head"),
        (Heads(nsp=False, pooler=False), Embed(text="a", pooling="pooler"), "pooler"),
    ],
)
def test_a_task_whose_head_is_missing_is_refused_by_name(tmp_path: Path, heads: Heads, task: Task, named: str) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(), heads=heads))
    with pytest.raises(HeadMissing, match=f"this checkpoint holds no {named}"):
        engine.encode(task)
    assert engine.encode(Tokenize(text="a")).result is not None


def test_a_model_with_one_segment_knows_no_pairs(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(type_vocab_size=1)))
    with pytest.raises(HeadMissing, match="type_vocab_size 1"):
        engine.encode(NextSentence(text="a", text_pair="b"))
    assert [name for name, able in engine.info.capabilities.items() if not able] == ["next_sentence"]


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


def test_what_a_long_answer_takes_is_counted(engine: Engine) -> None:
    assert engine.encode(Embed(text="the king")).answer_characters == 0
    assert engine.encode(NextSentence(text="the", text_pair="king")).answer_characters == 0
    assert engine.encode(EmbedAll(text="the king")).answer_characters == 4 * 20 * NUMBER_CHARACTERS
    assert engine.encode(EmbedSparse(text="the king")).answer_characters == 99 * WEIGHT_CHARACTERS
    assert engine.encode(Tokenize(text="the king")).answer_characters == 4 * TOKEN_CHARACTERS
    assert engine.encode(Decode(ids=(2, 73, 3), skip_special_tokens=False)).answer_characters == len("[CLS] the [SEP]")


def tokenized(engine: Engine, task: Tokenize) -> TokenizeResult:
    encoded = engine.encode(task)
    assert (encoded.sequences, encoded.compute_tokens) == ((), 0)
    assert isinstance(encoded.result, TokenizeResult)
    return encoded.result


def test_a_text_is_split_into_tokens_with_their_places(engine: Engine) -> None:
    result = tokenized(engine, Tokenize(text="The  北京[MASK]"))
    assert [TINY_VOCABULARY[token] for token in result.ids] == ["[CLS]", "the", "北", "京", "[MASK]", "[SEP]"]
    assert result.offsets.tolist() == [[0, 0], [0, 3], [5, 6], [6, 7], [7, 13], [0, 0]]
    assert result.special_tokens == ("[CLS]", "[SEP]")
    bare = tokenized(engine, Tokenize(text="The  北京[MASK]", add_special_tokens=False))
    assert bare.ids.tolist() == result.ids[1:-1].tolist()
    assert bare.offsets.tolist() == result.offsets[1:-1].tolist()
    assert bare.special_tokens == ()
    nothing = tokenized(engine, Tokenize(text="", add_special_tokens=False))
    assert (len(nothing.ids), nothing.offsets.shape) == (0, (0, 2))


def test_a_text_is_tokenized_beyond_the_limit_of_the_model_but_not_for_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(tokenized(engine, Tokenize(text="the " * 3 * LIMIT)).ids) == 3 * LIMIT + 2
    monkeypatch.setattr("service.engine.task_encoder.MOST_TOKENS", 5)
    assert len(tokenized(engine, Tokenize(text="the the the")).ids) == 5
    with pytest.raises(InvalidInput, match=r"^inputs: the text has 6 tokens, .* at most 5 to tokenize$"):
        engine.encode(Tokenize(text="the the the the"))
    with pytest.raises(InvalidInput, match="^inputs: 6 token ids; at most 5 to decode"):
        engine.encode(Decode(ids=(7,) * 6))
    with pytest.raises(InvalidInput, match="lone surrogate"):
        engine.encode(Tokenize(text="\ud800"))


def test_a_prompt_is_tokenized_with_the_text(tmp_path: Path) -> None:
    files = SentenceFiles(prompts={"query": "how is ", "empty": ""}, default_prompt_name="query")
    engine = tiny_engine(tmp_path, sentence_files=files)
    result = tokenized(engine, Tokenize(text="king", add_special_tokens=False))
    assert result.text == "how is king"
    assert [result.text[start:stop] for start, stop in result.offsets] == ["how", "is", "king"]
    assert tokenized(engine, Tokenize(text="king", prompt_name="empty")).text == "king"
    with pytest.raises(InvalidInput, match="^prompt_name: "):
        engine.encode(Tokenize(text="king", prompt_name="passage"))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (Decode(ids=(2, 73, 80, 3)), "the hello"),
        (Decode(ids=(2, 4, 3), skip_special_tokens=False), "[CLS] [MASK] [SEP]"),
        (Decode(ids=(15, 31)), "ka"),
    ],
)
def test_ids_are_turned_into_text(engine: Engine, task: Decode, text: str) -> None:
    assert engine.encode(task).result == DecodeResult(text=text)


def test_ids_that_the_vocabulary_does_not_reach_are_not_decoded(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="^inputs: token ids must be from 0 to 98"):
        engine.encode(Decode(ids=(7, 99)))


def characters_tokenized(engine: Engine, tasks: Sequence[Task]) -> int:
    with mock.patch.object(BertTokenizer, "_tokenize", autospec=True, side_effect=BertTokenizer._tokenize) as tokenize:
        for task in tasks:
            engine.encode(task)
    return sum(len(call.args[1]) for call in tokenize.call_args_list)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_half_that_stands_in_many_pairs_is_tokenized_once(engine: Engine, side: TruncationSide, place: int) -> None:
    text = "the queen. " * 9_000
    others = [f"king {number}" for number in range(50)]
    pairs = [(text, other)[:: 1 - 2 * place] for other in others]
    tasks = [NextSentence(text=first, text_pair=second, truncate=side) for first, second in pairs]
    # Its length, the end that is kept, and the others.
    assert characters_tokenized(engine, tasks) < 2 * len(text) + sum(map(len, others))
    alone = characters_tokenized(engine, [NextSentence(text=f"{text}!", text_pair="a", truncate=side)])
    assert alone > (len(text) if side == "left" else 15_000)


def test_a_text_is_tokenized_in_the_first_step_of_joint_filling_alone(engine: Engine) -> None:
    text = "the queen. " * 9_000 + "[MASK] [MASK]"
    first = engine.encode(FillNextMask(text=text, truncate="left"))
    assert first.encoding is not None
    for filled in ((None, 7), (7, 7)):
        step = FillNextMask(text=text, truncate="left", filled=filled, encoding=first.encoding)
        assert characters_tokenized(engine, [step]) == 0
        plain = engine.encode(FillNextMask(text=text, truncate="left", filled=filled))
        found = engine.encode(step)
        assert (found.sequences, found.mask_spans, found.result) == (plain.sequences, plain.mask_spans, plain.result)


def test_threads_encode_what_one_does(engine: Engine) -> None:
    texts = ["hello [MASK] world", "the [MASK] " + "of the " * 250, "a b", "do you like [MASK]? " * 3]

    def calls(worker: int) -> list[object]:
        answers: list[object] = []
        for call in range(250):
            text = texts[(worker + call) % len(texts)]
            side: TruncationSide | None = (None, "right", "left")[call % 3]
            task: Task = (
                FillMask(text=text, truncate=side),
                NextSentence(text=text, text_pair=texts[call % 2], truncate=side),
                Embed(text=text, truncate=side),
            )[call // 3 % 3]
            try:
                answers.append(engine.encode(task).sequences)
            except InvalidInput as error:
                answers.append(str(error))
        return answers

    expected = [calls(worker) for worker in range(4)]
    with ThreadPoolExecutor(16) as pool:
        for worker, answers in enumerate(pool.map(calls, range(16))):
            assert answers == expected[worker % 4]
