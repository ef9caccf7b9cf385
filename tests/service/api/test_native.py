from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from service.api.tei_bodies import embed_content
from service.api.tei_schemas import EmbedRequest
from service.errors import InvalidInput
from service.tasks import Answer, Embed, EmbedResult, FillMask, NextSentence, Task, Timing
from tests.service.fake_engine import FakeEncoded, FakeEngine, fake_vector
from tests.service.serving import serving

ONE_MASK = "a [MASK] b"
TWO_MASKS = "[MASK] a [MASK]"


def predictions(text: str, words: list[str]) -> list[dict[str, object]]:
    return [
        {"score": 1 / (2 + rank), "token": 40 + rank, "token_str": word, "sequence": text.replace("[MASK]", word)}
        for rank, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        (ONE_MASK, lambda of: of(ONE_MASK)),
        (TWO_MASKS, lambda of: [of(TWO_MASKS), of(TWO_MASKS)]),
        ([ONE_MASK], lambda of: [of(ONE_MASK)]),
        ([TWO_MASKS, ONE_MASK], lambda of: [[of(TWO_MASKS), of(TWO_MASKS)], of(ONE_MASK)]),
    ],
)
def test_fill_mask_shapes(inputs: object, shape: object) -> None:
    assert callable(shape)
    with serving() as client:
        answer = client.post("/fill-mask", json={"inputs": inputs, "top_k": 3})
    assert answer.status_code == 200
    assert answer.json() == shape(lambda text: predictions(text, ["capital", "centre", "heart"]))


def test_fill_mask_target_of_several_pieces_has_tokens_in_place_of_a_token() -> None:
    with serving() as client:
        [single, several] = client.post("/fill-mask", json={"inputs": ONE_MASK, "targets": ["x", "y z"]}).json()
    assert "tokens" not in single
    assert several["token"] is None
    assert several["tokens"] == [40, 41]


def test_fill_mask_details_keep_faults_to_their_items() -> None:
    with serving() as client:
        answer = client.post("/fill-mask", json={"inputs": [TWO_MASKS, "no mask", ONE_MASK, ""], "details": True})
        alone = client.post("/fill-mask", json={"inputs": ONE_MASK, "parameters": {"details": True, "top_k": 1}})
    assert answer.status_code == 200
    assert alone.json() == {
        "results": [
            {
                "masks": [{"position": 1, "predictions": predictions(ONE_MASK, ["capital"])}],
                "tokens": 3,
                "truncated": False,
            }
        ],
        "usage": {"prompt_tokens": 3},
    }
    content = answer.json()
    assert [mask["position"] for mask in content["results"][0]["masks"]] == [0, 2]
    assert content["results"][1] == {"error": "inputs: no [MASK] in the text", "error_type": "Validation"}
    assert content["results"][2]["tokens"] == 3
    assert content["results"][3] == {"error": "inputs: the text is empty", "error_type": "Empty"}
    assert content["usage"] == {"prompt_tokens": 6}


@pytest.mark.parametrize(
    ("path", "body", "status", "error_type", "error"),
    [
        ("/fill-mask", {"inputs": [ONE_MASK, ONE_MASK, "no"]}, 422, "Validation", "inputs[2]: no [MASK] in the text"),
        ("/fill-mask", {"inputs": "no"}, 422, "Validation", "inputs: no [MASK] in the text"),
        ("/fill-mask", {"inputs": "boom [MASK]"}, 500, "Backend", "the model failed on this item"),
        ("/embed", {"inputs": ["a", "boom"]}, 500, "Backend", "inputs[1]: the model failed on this item"),
        ("/embed", {"inputs": ["a", ""]}, 400, "Empty", "inputs[1]: the text is empty"),
        ("/next-sentence", {"inputs": ["", ""]}, 400, "Empty", "inputs: the text is empty"),
        ("/next-sentence", {"text": "", "candidates": ["a", ""]}, 400, "Empty", "candidates[1]: the text is empty"),
        ("/embed", {"inputs": "w " * 14, "truncate": False}, 422, "Validation", "inputs: 14 tokens; at most 13"),
        ("/next-sentence", {"inputs": ["w " * 9, "w " * 9]}, 422, "Validation", "inputs: 18 tokens; at most 13"),
    ],
)
def test_the_first_fault_is_the_answer_and_names_its_place(
    path: str, body: object, status: int, error_type: str, error: str
) -> None:
    with serving() as client:
        answer = client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json() == {"error": error, "error_type": error_type}


def pair(words: int) -> dict[str, object]:
    is_next = 1 / (1 + words)
    return {
        "is_next": is_next,
        "not_next": 1 - is_next,
        "label": "is_next" if words == 1 else "not_next",
        "logits": [float(words), -0.5],
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("inputs", "answer"),
    [
        (["a b", "c"], pair(3)),
        ({"text": "a", "text_pair": ""}, pair(1)),
        ([["a", "b c"]], [pair(3)]),
        ([["a", "b"], {"text": "", "text_pair": "c"}], [pair(2), pair(1)]),
    ],
)
def test_next_sentence_shapes(inputs: object, answer: object) -> None:
    with serving() as client:
        assert client.post("/next-sentence", json={"inputs": inputs}).json() == answer


def test_next_sentence_ranks_candidates_best_first() -> None:
    with serving() as client:
        answer = client.post("/next-sentence", json={"text": "a", "candidates": ["b c d", "b", "b c"]})
    assert answer.json() == [
        {"index": 1, "text": "b", "is_next": 1 / 3, "truncated": False},
        {"index": 2, "text": "b c", "is_next": 1 / 4, "truncated": False},
        {"index": 0, "text": "b c d", "is_next": 1 / 5, "truncated": False},
    ]


@pytest.mark.parametrize("path", ["/embed", "/"])
@pytest.mark.parametrize(
    ("inputs", "words"),
    [("a b", [2]), (["a", "a b c"], [1, 3]), ([101, 7, 102], [3]), ([[101, 102], "a", [101, 9, 102]], [2, 1, 3])],
)
def test_embeddings_are_two_dimensional(path: str, inputs: object, words: list[int]) -> None:
    with serving() as client:
        vectors = client.post(path, json={"inputs": inputs}).json()
    assert np.array_equal(np.array(vectors, dtype=np.float32), [fake_vector("w" * count) for count in words])


def test_base64_is_the_same_float32_little_endian() -> None:
    with serving() as client:
        [encoded] = client.post("/embed", json={"inputs": "a b", "encoding_format": "base64"}).json()
    assert np.array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), fake_vector(["a", "b"]))


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_base64_has_the_bytes_that_clients_decode(byte_order: str) -> None:
    request = EmbedRequest.model_validate({"inputs": "a", "encoding_format": "base64"})
    vector = np.array([1.0, -0.5, 0.25], dtype=f"{byte_order}f4")
    answer = Answer(result=EmbedResult(vector=vector, tokens=3, truncated=False), timing=Timing(), compute_tokens=3)
    assert embed_content(request, [answer]) == ["AACAPwAAAL8AAIA+"]


@pytest.mark.parametrize(
    ("path", "body", "task"),
    [
        ("/fill-mask", {"inputs": ONE_MASK}, FillMask(text=ONE_MASK)),
        (
            "/fill-mask",
            {"inputs": ONE_MASK, "top_k": 7, "parameters": {"top_k": 7, "targets": ["x"], "truncate": True}},
            FillMask(text=ONE_MASK, top_k=7, targets=("x",), truncate="right"),
        ),
        (
            "/fill-mask",
            {"inputs": ONE_MASK, "truncate": True, "truncation_direction": "LEFT", "top_k": None},
            FillMask(text=ONE_MASK, truncate="left"),
        ),
        ("/fill-mask", {"inputs": ONE_MASK, "truncation_direction": "left"}, FillMask(text=ONE_MASK)),
        (
            "/next-sentence",
            {"inputs": ["a", "b"], "truncate": True, "truncation_direction": "Left"},
            NextSentence(text="a", text_pair="b", truncate="left"),
        ),
        ("/embed", {"inputs": "a"}, Embed(text="a", truncate="right")),
        ("/embed", {"inputs": "a", "truncate": False}, Embed(text="a", truncate=None)),
        ("/embed", {"inputs": "a", "truncate": None, "normalize": None}, Embed(text="a", truncate="right")),
        (
            "/embed",
            {"inputs": [101, 102], "normalize": False, "dimensions": 3, "pooling": "max", "unknown": {"of": "TEI"}},
            Embed(text=(101, 102), normalize=False, dimensions=3, pooling="max", truncate="right"),
        ),
    ],
)
def test_requests_become_tasks(path: str, body: object, task: Task) -> None:
    engine = FakeEngine()
    with serving(engine) as client:
        assert client.post(path, json=body).status_code == 200
    assert engine.asked == [task]


def test_embedding_is_cut_by_the_setting_unless_the_request_says() -> None:
    long = "w " * 14
    with serving(auto_truncate=False) as client:
        assert client.post("/embed", json={"inputs": long}).status_code == 422
        cut = client.post("/embed", json={"inputs": ["a", long, long], "truncate": True})
    assert cut.status_code == 200
    assert cut.headers["x-truncated"] == "2"


class PickyEngine(FakeEngine):
    """Has no target that is in upper case."""

    def encode(self, task: Task) -> FakeEncoded:
        assert isinstance(task, FillMask)
        for index, target in enumerate(task.targets or ()):
            if target.isupper():
                raise InvalidInput("is not in the vocabulary", field=f"parameters.targets[{index}]")
        return super().encode(task)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"targets": ["x", "Y"]}, "targets[1]"),
        ({"parameters": {"targets": ["x", "y", "Z"]}}, "parameters.targets[2]"),
    ],
)
def test_faults_of_targets_name_the_place_where_they_are(options: dict[str, object], place: str) -> None:
    message = {"error": f"{place}: is not in the vocabulary", "error_type": "Validation"}
    with serving(PickyEngine()) as client:
        assert client.post("/fill-mask", json={"inputs": ONE_MASK, **options}).json() == message
        assert client.post("/fill-mask", json={"inputs": [ONE_MASK], **options}).json() == message
        detailed = client.post("/fill-mask", json={"inputs": ONE_MASK, "details": True, **options}).json()
    assert detailed["results"] == [message]


def test_requests_beside_one_that_fails_are_answered_and_so_are_all_after_it() -> None:
    with serving() as client, ThreadPoolExecutor(8) as clients:
        assert client.post("/embed", json={}).status_code == 422

        def statuses(texts: Sequence[str]) -> list[int]:
            answers = clients.map(lambda text: client.post("/embed", json={"inputs": text}), texts)
            return [answer.status_code for answer in answers]

        assert statuses(["hello", "a boom", *"abcdef"]) == [200, 500, *[200] * 6]
        assert statuses(["ok", "", *"abcdef"]) == [200, 400, *[200] * 6]
        assert statuses("abcdefgh") == [200] * 8
