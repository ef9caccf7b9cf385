"""The other routes of TEI, and joint filling, over HTTP with a fake engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from service.errors import ServiceError
from service.tasks import Decode, Embed, EmbedAll, EmbedResult, EmbedSparse, Result, Task, Tokenize
from tests.service.fake_engine import FAKE_INFO, FakeEncoded, FakeEngine, fake_vector
from tests.service.serving import serving

CLS = {"id": 7, "text": "[CLS]", "special": True, "start": None, "stop": None}


def token(number: int, text: str, start: int) -> dict[str, object]:
    return {"id": number, "text": text, "special": False, "start": start, "stop": start + len(text)}


@pytest.mark.parametrize(
    ("inputs", "words"), [("a b", [["a", "b"]]), (["c", "d e"], [["c"], ["d", "e"]]), ([101, 102], [["101", "102"]])]
)
def test_each_token_has_its_vector(inputs: object, words: list[list[str]]) -> None:
    with serving() as client:
        answer = client.post("/embed_all", json={"inputs": inputs}).json()
    assert [len(vectors) for vectors in answer] == [len(text) for text in words]
    for vectors, text in zip(answer, words, strict=True):
        expected = [fake_vector(text[: count + 1]) for count in range(len(text))]
        assert np.array_equal(np.array(vectors, dtype=np.float32), expected)


@pytest.mark.parametrize(("inputs", "counts"), [("a b", [2]), (["a", "b c d"], [1, 3]), ([[101, 7, 102], "a"], [3, 1])])
def test_sparse_embeddings_are_lists_of_indices_and_values(inputs: object, counts: list[int]) -> None:
    with serving() as client:
        answer = client.post("/embed_sparse", json={"inputs": inputs}).json()
    assert answer == [
        [{"index": 10 * number, "value": (number + 1) / 4} for number in range(count)] for count in counts
    ]


def test_sparse_embeddings_that_are_too_long_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.tei_bodies.MAX_ANSWER_CHARACTERS", 5 * 36)
    with serving() as client:
        assert client.post("/embed_sparse", json={"inputs": ["a b", "c d e"]}).status_code == 200
        refused = client.post("/embed_sparse", json={"inputs": ["a b", "c d e f"]})
    assert refused.status_code == 413
    assert refused.json()["error"].startswith("inputs: the answer would be about 216 characters long")


class RoundEngine(FakeEngine):
    """The vector of a text of n words has length 1 and an angle of n radians."""

    def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> list[Result | ServiceError]:
        assert threads == 1
        angles = [len(str(item.task.text).split()) for item in batch if isinstance(item.task, Embed)]
        vectors = [np.array([math.cos(angle), math.sin(angle)], dtype=np.float32) for angle in angles]
        return [EmbedResult(vector=vector, tokens=3, truncated=False) for vector in vectors]


def test_similarities_are_cosines_in_order() -> None:
    engine = RoundEngine()
    texts = ["a b", "c", "d e f g h", "a b"]
    with serving(engine) as client:
        answer = client.post("/similarity", json={"inputs": {"source_sentence": "x y", "sentences": texts}})
    assert answer.json() == pytest.approx([1, math.cos(1), math.cos(3), 1], abs=1e-6)
    assert max(answer.json()) <= 1
    assert engine.asked == [Embed(text=text, truncate="right") for text in ("x y", *texts)]


def test_a_text_is_split_into_tokens() -> None:
    with serving() as client:
        whole = client.post("/tokenize", json={"inputs": "ab  c"})
        bare = client.post("/tokenize", json={"inputs": ["ab  c", ""], "add_special_tokens": False})
    assert whole.json() == [[CLS, token(8, "ab", 0), token(9, "c", 4), {**CLS, "id": 10, "text": "[SEP]"}]]
    assert bare.json() == [[token(7, "ab", 0), token(8, "c", 4)], []]
    assert whole.headers["x-compute-tokens"] == "0"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"ids": [0, 5]}, ["5"]),
        ({"ids": [[0, 5], [7]]}, ["5", "7"]),
        ({"ids": [[0, 5]], "skip_special_tokens": False}, ["0 5"]),
    ],
)
def test_ids_are_turned_into_text(body: object, texts: list[str]) -> None:
    with serving() as client:
        assert client.post("/decode", json=body).json() == texts


@pytest.mark.parametrize(
    ("path", "body", "task"),
    [
        ("/embed_all", {"inputs": "a", "prompt_name": "q"}, EmbedAll(text="a", prompt_name="q", truncate="right")),
        ("/embed_all", {"inputs": [101, 102], "truncate": False}, EmbedAll(text=(101, 102))),
        (
            "/embed_sparse",
            {"inputs": "a", "truncate": True, "truncation_direction": "Left", "normalize": "unknown here"},
            EmbedSparse(text="a", truncate="left"),
        ),
        ("/tokenize", {"inputs": "a", "prompt_name": "q"}, Tokenize(text="a", prompt_name="q")),
        ("/tokenize", {"inputs": "a", "add_special_tokens": False}, Tokenize(text="a", add_special_tokens=False)),
        ("/decode", {"ids": [5], "skip_special_tokens": None}, Decode(ids=(5,))),
        (
            "/similarity",
            {
                "inputs": {"source_sentence": "a", "sentences": ["b"], "more": 1},
                "parameters": {"truncate": True, "truncation_direction": "Left", "prompt_name": "q", "more": 1},
            },
            Embed(text="a", prompt_name="q", truncate="left"),
        ),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {"truncate": False}},
            Embed(text="a"),
        ),
    ],
)
def test_requests_become_tasks(path: str, body: object, task: Task) -> None:
    engine = FakeEngine()
    with serving(engine) as client:
        assert client.post(path, json=body).status_code == 200
    assert engine.asked[0] == task


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/embed_all", {"inputs": ["a", ""]}, 400, "inputs[1]: the text is empty"),
        ("/embed_all", {"inputs": ["a", "boom"]}, 500, "inputs[1]: the model failed on this item"),
        ("/embed_sparse", {"inputs": []}, 400, "inputs: must hold at least one text"),
        ("/embed_sparse", {"inputs": "w " * 14, "truncate": False}, 422, "inputs: 14 tokens; at most 13"),
        (
            "/embed_sparse",
            {"inputs": ["a"] * 4},
            422,
            "inputs: holds 4; at most 3 in one request (max_client_batch_size)",
        ),
        (
            "/similarity",
            {"inputs": {"source_sentence": "", "sentences": ["a"]}},
            400,
            "inputs.source_sentence: the text is empty",
        ),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b", ""]}},
            400,
            "inputs.sentences[1]: the text is empty",
        ),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": []}},
            400,
            "inputs.sentences: must hold at least one text",
        ),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, 422, "inputs.sentences: is missing"),
        ("/similarity", {"inputs": "a"}, 422, "inputs: must be a JSON object"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b", "c", "d"]}},
            422,
            "inputs: holds 4; at most 3 in one request (max_client_batch_size)",
        ),
        ("/tokenize", {"inputs": ["a", 5]}, 422, "inputs[1]: must be a string"),
        ("/tokenize", {"inputs": ["a"] * 4}, 422, "inputs: holds 4; at most 3 in one request (max_client_batch_size)"),
        ("/decode", {}, 422, "ids: is missing"),
        ("/decode", {"ids": []}, 400, "ids: must hold at least one token id"),
        ("/decode", {"ids": [[5], []]}, 400, "ids[1]: must hold at least one token id"),
        ("/decode", {"ids": [5, "a"]}, 422, "ids[1]: must be a token id, a whole number from 0"),
        ("/decode", {"ids": [[5], 6]}, 422, "ids[1]: must be a string or a list of token ids"),
        ("/decode", {"ids": [5, 99]}, 422, "ids: there is no such id"),
        ("/decode", {"ids": [[5], [99]]}, 422, "ids[1]: there is no such id"),
        ("/decode", {"ids": [[5]] * 4}, 422, "ids: holds 4; at most 3 in one request (max_client_batch_size)"),
    ],
)
def test_faults_name_their_place(path: str, body: object, status: int, error: str) -> None:
    with serving(max_client_batch_size=3) as client:
        answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_without_the_masked_lm_head_the_others_work() -> None:
    engine = FakeEngine(info=replace(FAKE_INFO, heads_missing=("mlm",)))
    with serving(engine) as client:
        sparse = client.post("/embed_sparse", json={"inputs": "a"})
        assert (sparse.status_code, sparse.headers["x-should-retry"]) == (501, "false")
        for path, body in (("/embed_all", {"inputs": "a"}), ("/tokenize", {"inputs": "a"}), ("/decode", {"ids": [1]})):
            assert client.post(path, json=body).status_code == 200


def filled(score: float, *token_ids: int) -> dict[str, object]:
    pieces = [f"piece{number}" for number in token_ids]
    return {"score": pytest.approx(score), "tokens": [*token_ids], "token_strs": pieces, "sequence": " ".join(pieces)}


ONE = [filled(1 / 2, 40), filled(1 / 3, 41)]
TWO = [filled(1 / 4, 40, 40), filled(1 / 6, 41, 40)]


@pytest.mark.parametrize(
    ("inputs", "answer"),
    [("[MASK]", ONE), ("a [MASK] [MASK]", TWO), (["[MASK]"], [ONE]), (["[MASK] [MASK]", "[MASK]"], [TWO, ONE])],
)
@pytest.mark.parametrize("nested", [False, True])
def test_masks_are_filled_jointly(inputs: object, answer: object, nested: bool) -> None:
    options = {"strategy": "joint", "top_k": 2}
    body = {"inputs": inputs, "parameters": options} if nested else {"inputs": inputs, **options}
    with serving() as client:
        found = client.post("/fill-mask", json=body)
    assert found.json() == answer
    # Two words for the first step, two a sequence for the second.
    if inputs == ["[MASK] [MASK]", "[MASK]"]:
        assert found.headers["x-compute-tokens"] == str(2 + 2 * 2 + 1)


def test_joint_details_keep_faults_to_their_items() -> None:
    body = {"inputs": ["[MASK]", "no mask", "boom [MASK]"], "strategy": "joint", "top_k": 1, "details": True}
    with serving() as client:
        answer = client.post("/fill-mask", json=body)
    assert answer.json() == {
        "results": [
            {"sequences": [filled(1 / 2, 40)], "tokens": 1, "truncated": False},
            {"error": "inputs: no [MASK] in the text", "error_type": "Validation"},
            {"error": "the model failed on this item", "error_type": "Backend"},
        ],
        "usage": {"prompt_tokens": 1},
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"targets": ["a"]}, "strategy: joint has no targets; leave them out, or choose independent"),
        ({"top_k": 4}, "top_k: is 4 for 2 texts; with the joint strategy at most 7 sequences in one request"),
        ({"strategy": "best"}, "strategy: must be 'independent' or 'joint'"),
        ({"parameters": {"strategy": "independent"}}, "strategy: differs from parameters.strategy"),
    ],
)
def test_what_joint_filling_cannot_do_is_refused(options: dict[str, object], error: str) -> None:
    with serving(max_client_batch_size=7) as client:
        answer = client.post("/fill-mask", json={"inputs": ["[MASK]"] * 2, "strategy": "joint", **options})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith(error)


def test_the_first_fault_of_a_joint_request_is_its_answer() -> None:
    with serving() as client:
        answer = client.post("/fill-mask", json={"inputs": ["[MASK]", "no"], "strategy": "joint"})
    assert (answer.status_code, answer.json()["error"]) == (422, "inputs[1]: no [MASK] in the text")
