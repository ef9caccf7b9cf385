from __future__ import annotations

from pathlib import Path

import pytest

from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.errors import EmptyInput, ForeignTokenIds, InvalidInput
from service.tasks import Embed, EmbedAll, EmbedSparse
from tests.service.engine.encoded import EMBED_LIMIT, pieces
from tests.service.engine.tiny_engine import tiny_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return tiny_engine(tmp_path_factory.mktemp("tiny"), sentence_files=SentenceFiles(max_length=EMBED_LIMIT))


def test_ids_are_used_as_they_are(engine: Engine) -> None:
    ids = (2, 40, 3, 0, 41, 3)
    encoded = engine.encode(Embed(text=ids))
    assert encoded.sequences[0].ids == list(ids)
    assert encoded.sequences[0].segment_ids == [0] * 6


def test_all_embedding_tasks_are_encoded_alike(engine: Engine) -> None:
    text = "the " * 30 + "king"
    [one] = engine.encode(Embed(text=text, pooling="mean", truncate="left")).sequences
    assert len(one.ids) == EMBED_LIMIT
    for task in (EmbedAll(text=text, truncate="left"), EmbedSparse(text=text, truncate="left")):
        encoded = engine.encode(task)
        assert encoded.sequences == (one,)
        assert encoded.truncated


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
