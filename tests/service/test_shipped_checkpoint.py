"""The checkpoint in `weights/`, through the engine: useful answers, and those of `transformers`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoTokenizer, BertForPreTraining

from bert_core import BertTokenizer, load_pretrained
from service.api.openapi_examples import Example
from service.api.openapi_operations import OPERATIONS
from service.app import create_app
from service.engine.engine import Engine
from service.settings import Settings
from service.tasks import Embed, FillMask, NextSentence, Task
from tests.live_server import ROOT
from tests.service.serving import wait_until

FOLDER = ROOT / "weights" / "minilm-l6-bert-en"

SENTENCES = [
    "She drank a cup of [MASK].",
    "The quick brown [MASK] jumps over the lazy dog.",
    "A naïve café owner paid £10 – or 5° more 😃 – to 北京.",
    "the " * 500 + "end",
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(FOLDER, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    app = create_app(Settings(served_model_name="weights/minilm-l6-bert-en"), engine)
    with TestClient(app) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        yield client


def ask(engine: Engine, *tasks: Task) -> list[Any]:
    return list(engine.run([engine.encode(task) for task in tasks]))


@pytest.mark.parametrize(
    ("text", "word", "least"),
    [
        ("She drank a cup of [MASK].", "tea", 0.2),
        ("The president of the United [MASK].", "states", 0.8),
        ("The quick brown [MASK] jumps over the lazy dog.", "dog", 0.4),
    ],
)
def test_masks_are_filled_with_sense(engine: Engine, text: str, word: str, least: float) -> None:
    (result,) = ask(engine, FillMask(text=text))
    best = result.masks[0].predictions[0]
    assert best.token_str == word
    assert best.score > least


def test_a_sentence_that_follows_is_told_from_one_that_does_not(engine: Engine) -> None:
    text = "He put the key in the lock."
    follows, strange = ask(
        engine,
        NextSentence(text=text, text_pair="The door would not open."),
        NextSentence(text=text, text_pair="Inflation rose to four percent last year."),
    )
    assert follows.is_next > 0.8
    assert strange.is_next < 0.2


def test_like_texts_have_like_vectors(engine: Engine) -> None:
    cat, kitten, bond = (
        result.vector
        for result in ask(
            engine,
            Embed(text="A cat sat on the mat."),
            Embed(text="A kitten was sitting on a rug."),
            Embed(text="The bond market fell today."),
        )
    )
    assert cat @ kitten > 0.5 > 0.2 > cat @ bond
    assert np.linalg.norm(cat) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("path", "example"),
    [
        pytest.param(operation.path, example, id=f"{operation.path} {name}")
        for operation in OPERATIONS
        for name, example in operation.examples.items()
        if operation.path != "/"
    ],
)
def test_the_documented_examples_are_what_it_answers(client: TestClient, path: str, example: Example) -> None:
    answer = client.post(path, json=example.request)
    assert answer.status_code == 200
    assert_alike(answer.json(), example.answer, abridged=example.abridged)


def assert_alike(answer: object, rounded: object, *, abridged: bool) -> None:
    """Equal, but for numbers to 3 digits and vectors in base64 to float32's precision; `abridged` lists may go on."""
    match rounded:
        case dict():
            assert isinstance(answer, dict)
            assert answer.keys() == rounded.keys()
            for name, value in rounded.items():
                assert_alike(answer[name], value, abridged=abridged)
        case list():
            assert isinstance(answer, list)
            assert len(answer) >= len(rounded) if abridged else len(answer) == len(rounded)
            for item, value in zip(answer, rounded, strict=not abridged):
                assert_alike(item, value, abridged=abridged)
        case float():
            assert answer == pytest.approx(rounded, rel=0.01)
        case str() if rounded.endswith("=="):
            assert isinstance(answer, str)
            vector, expected = (np.frombuffer(base64.b64decode(text), "<f4") for text in (answer, rounded))
            assert vector == pytest.approx(expected, abs=1e-5)
        case _:
            assert answer == rounded


def test_all_outputs_equal_those_of_transformers() -> None:
    reference = BertForPreTraining.from_pretrained(FOLDER, dtype=torch.float32).eval()
    batch = AutoTokenizer.from_pretrained(FOLDER)(SENTENCES, padding=True, return_tensors="pt")
    ours = load_pretrained(FOLDER)
    tokenizer = BertTokenizer.from_pretrained(FOLDER)
    kept = batch["attention_mask"].bool()
    for text, ids, keep in zip(SENTENCES, batch["input_ids"], kept, strict=True):
        assert tokenizer.encode(text, max_length=512).ids == ids[keep].tolist()
    with torch.no_grad():
        theirs = reference(**batch, output_hidden_states=True)
        output = ours(**batch, output_hidden_states=True)
    for state, other in zip(output.hidden_states, theirs.hidden_states, strict=True):
        assert (state - other)[kept].abs().max() <= 1e-5
    assert (output.prediction_logits - theirs.prediction_logits)[kept].abs().max() <= 1e-4
    assert (output.seq_relationship_logits - theirs.seq_relationship_logits).abs().max() <= 1e-4
