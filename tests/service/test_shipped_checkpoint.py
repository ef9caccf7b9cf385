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
        ("She drank a cup of [MASK].", "coffee", 0.2),
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
    key, window = "He put the key in the lock.", "She opened the window."
    door, inflation, air, treaty = (
        result.is_next
        for result in ask(
            engine,
            NextSentence(text=key, text_pair="The door would not open."),
            NextSentence(text=key, text_pair="Inflation rose to four percent last year."),
            NextSentence(text=window, text_pair="Fresh air came in."),
            NextSentence(text=window, text_pair="The treaty was signed in 1848."),
        )
    )
    assert min(door, air) > 0.8
    assert treaty < 0.2
    assert inflation < 0.3


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


QUEEN = [101, 1996, 3035, 2038, 2741, 1037, 1056, 28394, 2102, 2000, 1996, 3035, 2012, 17836, 4186, 2000, 8439, 2014]
QUEEN += [3938, 2705, 5798, 102]


@pytest.mark.parametrize("mask", [None, [[1] * 22 + [0] * 2]])
def test_padding_changes_no_real_token(mask: list[list[int]] | None) -> None:
    model = load_pretrained(FOLDER)
    padded = torch.tensor([[*QUEEN, 0, 0]])
    with torch.no_grad():
        alone = model.bert(torch.tensor([QUEEN])).last_hidden_state
        found = model.bert(padded, attention_mask=None if mask is None else torch.tensor(mask)).last_hidden_state
    assert (found[:, :22] - alone).abs().max() <= 1e-5


def test_a_text_has_the_same_vector_in_any_company(engine: Engine) -> None:
    text, long = Embed(text="apple tv 4k"), Embed(text="the queen of England " * 60)
    alone = ask(engine, text)[0].vector
    for batch in ([text, Embed(text="whole milk")], [text, long], [text, *[long] * 7], [*[long] * 7, text]):
        vector = ask(engine, *batch)[batch.index(text)].vector
        assert np.abs(vector - alone).max() <= 1e-5
        assert vector @ alone >= 0.999999


@pytest.mark.parametrize(
    ("text", "text_pair"),
    [("How old are you?", "The Eiffel Tower is in Paris"), ("I like cookies !", "Do you like them ?")],
)
def test_the_segments_of_a_pair_are_those_of_transformers(engine: Engine, text: str, text_pair: str) -> None:
    reference = BertForPreTraining.from_pretrained(FOLDER, dtype=torch.float32).eval()
    batch = AutoTokenizer.from_pretrained(FOLDER)(text, text_pair, return_tensors="pt")
    with torch.no_grad():
        expected = reference(**batch).seq_relationship_logits[0]
        without = reference(batch["input_ids"]).seq_relationship_logits[0]
    (result,) = ask(engine, NextSentence(text=text, text_pair=text_pair))
    assert np.abs(np.array(result.logits) - expected.numpy()).max() <= 1e-4
    assert np.abs(np.array(result.logits) - without.numpy()).max() > 1e-3


HUNGRY = "When I am hungry, I eat a [MASK]."


def hungry(*targets: str) -> dict[str, Any]:
    return {"inputs": HUNGRY, "targets": list(targets)}


def pair(text: str, text_pair: str, **options: object) -> dict[str, Any]:
    return {"inputs": [text, text_pair], **options}


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/fill-mask", {"inputs": "the " * 509 + "[MASK]"}, 200, ""),
        ("/fill-mask", {"inputs": "the " * 510 + "[MASK]"}, 422, "has 513 tokens and the limit is 512"),
        ("/fill-mask", {"inputs": "the " * 600 + "[MASK]", "truncate": True}, 200, ""),
        ("/fill-mask", {"inputs": "[MASK] " + "the " * 600, "truncate": True}, 200, ""),
        ("/fill-mask", {"inputs": "[MASK] " + "the " * 600 + "[MASK]", "truncate": True}, 422, "further apart"),
        ("/fill-mask", {"inputs": "Hello~[MASK][MASK]"}, 200, ""),
        ("/fill-mask", {"inputs": "[CLS] the [MASK] [SEP]"}, 200, ""),
        *(
            ("/fill-mask", {"inputs": text}, 422, "no [MASK] in the text")
            for text in ("Hello-[mask]", "[Mask]", "[ MASK ]", "<mask>", "[MA\u200dSK]")
        ),
        ("/fill-mask", hungry("pizza", "banana", "pasta"), 200, ""),
        ("/fill-mask", hungry("damnation"), 200, ""),
        ("/fill-mask", hungry("Pizza"), 200, ""),
        ("/fill-mask", hungry("xqzt", "pizza"), 200, ""),
        ("/fill-mask", hungry("##ing"), 200, ""),
        ("/fill-mask", hungry("\u2603"), 422, "targets[0]: the vocabulary cannot spell"),
        ("/fill-mask", hungry(), 422, "targets: must hold at least 1"),
        ("/fill-mask", hungry(""), 422, "targets[0]: must not be empty"),
        ("/fill-mask", hungry("pizza", "[MASK]"), 422, "targets[1]: a special token"),
        *(
            ("/embed", {"inputs": inputs}, 400, "")
            for inputs in ("", " ", "\t\n", "\u200b", "\u0e38", [], ["ok", ""], ["ok", "\u200b"])
        ),
        ("/embed", {"inputs": [101, 30522, 102]}, 422, "token ids must be from 0 to 30521"),
        ("/embed", {"inputs": [101, *[1996] * 511, 102], "truncate": False}, 422, "has 513 tokens"),
        *(("/embed", {"inputs": inputs}, 422, "inputs") for inputs in (None, [["a"]], 7, {"a": "b"})),
        *(
            ("/next-sentence", pair(first, second, truncate=True), 200, '"truncated":true')
            for first, second in (
                ("", "the " * 510),
                ("the " * 600, ""),
                ("the " * 400, "the " * 300),
                ("the " * 300, "the " * 400),
                ("the " * 300, "the " * 300),
            )
        ),
        ("/next-sentence", pair("", "the " * 510), 422, "has 513 tokens and the limit is 512"),
        ("/next-sentence", pair("abc", ""), 200, '"truncated":false'),
        ("/next-sentence", pair("a [SEP] b", "c"), 200, '"truncated":false'),
        ("/next-sentence", pair("", "\u200b"), 400, "both halves are empty"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_hard_inputs_have_their_answers(
    client: TestClient, path: str, body: dict[str, Any], status: int, told: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert told in answer.text
    assert client.post("/embed", json={"inputs": "ok"}).status_code == 200


def test_targets_keep_the_probabilities_that_they_have_among_all_words(client: TestClient) -> None:
    everything = client.post("/fill-mask", json={"inputs": HUNGRY, "top_k": 1000}).json()
    known = {prediction["token_str"]: prediction["score"] for prediction in everything}
    answer = client.post("/fill-mask", json=hungry("Pizza", "banana", "pizza", "bite")).json()
    assert sorted(prediction["token_str"] for prediction in answer) == ["banana", "bite", "pizza"]
    for prediction in answer:
        assert prediction["score"] == pytest.approx(known[prediction["token_str"]], rel=1e-4)
    [spelled] = client.post("/fill-mask", json=hungry("damnation")).json()
    assert (spelled["token"], len(spelled["tokens"])) == (None, 2)


# All that a text may hold and that is seldom tried: controls, formats, separators, private use, unassigned, the last.
HARD_CHARACTERS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA1)), *"\xad\u0378\u061c\u180e\u200b\u200e\u2028"]
HARD_CHARACTERS += [*"\u2029\u202e\u2060\u2066\ufe0f\ufeff\ufff9\ufffd\uffff\ue000\U000e0001\U0010ffff"]


def test_every_control_character_is_taken(client: TestClient) -> None:
    texts = [f"a{character}b [MASK] {character}c" for character in HARD_CHARACTERS]
    filled = client.post("/fill-mask", json={"inputs": texts, "top_k": 1})
    assert filled.status_code == 200
    for text, [prediction] in zip(texts, filled.json(), strict=True):
        assert prediction["sequence"] == text.replace("[MASK]", prediction["token_str"])
    vectors = client.post("/embed", json={"inputs": texts}).json()
    assert np.isfinite(np.array(vectors)).all()
    for character in HARD_CHARACTERS:
        assert client.post("/embed", json={"inputs": character}).status_code in (200, 400)
