from __future__ import annotations

import base64
import time
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pytest

from service.errors import ForeignTokenIds
from service.tasks import Embed, Task
from tests.service.fake_engine import FAKE_INFO, FakeEncoded, FakeEngine, fake_vector
from tests.service.serving import serving

NAME = "team/model v2"


@pytest.mark.parametrize(
    ("value", "words"),
    [("a b", [2]), (["a", "a b c"], [1, 3]), ([101, 7, 102], [3]), ([[101, 102], [101, 9, 8, 102]], [2, 4])],
)
@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
def test_embeddings_have_the_shape_of_openai(value: object, words: list[int], encoding_format: str | None) -> None:
    body = {"input": value, "model": "text-embedding-3-small", "user": "me", "encoding_format": encoding_format}
    with serving(served_model_name=NAME) as client:
        answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200
    assert {"x-total-time", "x-compute-tokens", "x-request-id"} <= answer.headers.keys()
    content = answer.json()
    embeddings = [item.pop("embedding") for item in content["data"]]
    assert content == {
        "object": "list",
        "data": [{"object": "embedding", "index": index} for index in range(len(words))],
        "model": NAME,
        "usage": {"prompt_tokens": sum(words), "total_tokens": sum(words)},
    }
    if encoding_format == "base64":
        embeddings = [np.frombuffer(base64.b64decode(embedding), "<f4") for embedding in embeddings]
    assert np.array_equal(np.array(embeddings, np.float32), [fake_vector("w" * count) for count in words])


@pytest.mark.parametrize(
    ("body", "task"),
    [
        ({"input": "a"}, Embed(text="a", truncate="right")),
        (
            {"input": "a", "model": "any", "dimensions": 3, "pooling": "max", "inputs": "b", "normalize": False},
            Embed(text="a", dimensions=3, truncate="right"),
        ),
        ({"input": [101, 102], "dimensions": None}, Embed(text=(101, 102), truncate="right")),
    ],
)
def test_requests_become_tasks_and_unknown_fields_are_ignored(body: object, task: Task) -> None:
    engine = FakeEngine()
    with serving(engine) as client:
        assert client.post("/v1/embeddings", json=body).status_code == 200
    assert engine.asked == [task]


def test_long_texts_are_cut_if_the_settings_say_so() -> None:
    body = {"input": ["a", "w " * 14]}
    with serving() as client:
        cut = client.post("/v1/embeddings", json=body)
    assert cut.headers["x-truncated"] == "1"
    assert cut.json()["usage"] == {"prompt_tokens": 14, "total_tokens": 14}
    with serving(auto_truncate=False) as client:
        refused = client.post("/v1/embeddings", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input[1]"


class OtherVocabulary(FakeEngine):
    """Takes no token ids but `[CLS] [SEP]`."""

    def encode(self, task: Task) -> FakeEncoded:
        if isinstance(task, Embed) and isinstance(task.text, tuple) and task.text != (101, 102):
            raise ForeignTokenIds("mean nothing", field="inputs")
        return super().encode(task)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"model": "any"}, "input: is missing", "input"),
        ({"input": []}, "input: must hold at least one text", "input"),
        ({"input": ""}, "input: the text is empty", "input"),
        ({"input": {"text": "a"}}, "input: must be a string, a list of token ids, or a list of those", "input"),
        ({"input": ["a", None]}, "input[1]: must be a string or a list of token ids", "input[1]"),
        ({"input": ["a", ""]}, "input[1]: the text is empty", "input[1]"),
        ({"input": ["a", "b", "c"]}, "input: holds 3; at most 2 in one request (max_client_batch_size)", "input"),
        ({"input": "a", "dimensions": 0}, "dimensions: must be at least 1", "dimensions"),
        ({"input": "a", "model": 7}, "model: must be a string", "model"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format: must be 'float' or 'base64'", "encoding_format"),
        (
            {"input": [[101, 102], [9906]]},
            "input[1]: mean nothing; LangChain's OpenAIEmbeddings sends text with check_embedding_ctx_length=False",
            "input[1]",
        ),
    ],
)
def test_faults_of_a_request_name_openais_fields(body: object, message: str, param: str) -> None:
    with serving(OtherVocabulary(), max_client_batch_size=2) as client:
        answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    told = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    assert answer.json() == {"error": told}


@pytest.mark.parametrize(
    ("text", "headers", "status", "kind"),
    [
        ("boom", {}, 500, "server_error"),
        ("a", {"x-request-timeout-ms": "soon"}, 400, "invalid_request_error"),
        ("w" * 101, {}, 413, "invalid_request_error"),
        ("a", {"authorization": "Bearer other"}, 401, "authentication_error"),
    ],
)
def test_every_part_that_refuses_speaks_openais_language(
    text: str, headers: dict[str, str], status: int, kind: str
) -> None:
    with serving(api_key="sesame", payload_limit=100) as client:
        answer = client.post(
            "/v1/embeddings", json={"input": text}, headers={"authorization": "Bearer sesame", **headers}
        )
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == kind


def test_a_fault_of_our_own_too() -> None:
    class Faulty(FakeEngine):
        def encode(self, _: Task) -> FakeEncoded:
            raise ZeroDivisionError

    with serving(Faulty()) as client:
        answer = client.post("/v1/embeddings", json={"input": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("name", [NAME, "fake", "weights/a b?c"])
def test_models_are_the_one_that_is_served(name: str) -> None:
    with serving(served_model_name=name) as client:
        listed = client.get("/v1/models").json()
        [model] = listed["data"]
        assert listed == {"object": "list", "data": [model]}
        assert client.get(f"/v1/models/{quote(name)}").json() == model
        assert client.get(f"/v1/models/{quote(name, safe='')}").json() == model
        missing = client.get(f"/v1/models/{quote(name)}x")
    created = model.pop("created")
    assert isinstance(created, int)
    assert abs(created - time.time()) < 60
    assert model == {"id": name, "object": "model", "owned_by": "bert-service"}
    assert missing.status_code == 404
    error = missing.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "model", "model_not_found")
    assert name not in error["message"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fake"])
def test_models_are_told_once_the_model_can_be_used(path: str) -> None:
    with serving(FakeEngine(info=replace(FAKE_INFO, model_id="fake")), served_model_name="fake") as client:
        assert client.get(path).status_code == 200
        client.post("/embed", json={"inputs": "poison"})
        answer = client.get(path)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["type"] == "server_error"
