"""Whatever is sent, the answer is an answer: a body in the documented form, no 5xx, and none of the sender's words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.service.engine.tiny_engine import tiny_engine
from tests.service.serving import wait_until

ROUTES = ["/embed", "/embed_all", "/embed_sparse", "/similarity", "/tokenize", "/decode", "/fill-mask"]
ROUTES += ["/next-sentence", "/", "/v1/embeddings"]

SECRET = "zyxwvut"

FIELDS = ["inputs", "input", "ids", "text", "text_pair", "candidates", "parameters", "targets", "top_k", "strategy"]
FIELDS += ["details", "truncate", "truncation_direction", "normalize", "dimensions", "pooling", "prompt_name", "model"]
FIELDS += ["encoding_format", "source_sentence", "sentences", "add_special_tokens", "skip_special_tokens"]
FIELDS += [f"{SECRET} words"]

texts = st.one_of(
    st.sampled_from(["", " ", "[MASK]", "a [MASK] b", "[MASK] [MASK]", "[CLS] [SEP]", f"{SECRET} [MASK]", "the " * 50]),
    st.sampled_from(["left", "joint", "base64", "mean", "float", "\u200b", "\u0e38", "😃", "e\u0301", "\x00\x1f\x7f"]),
    st.text(max_size=9),
)
numbers = st.one_of(
    st.integers(-2, 120),
    st.sampled_from([10**18, -(10**18), 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 5e-324]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, st.just([2, 7, 8, 3])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3)),
    max_leaves=8,
)
bodies = st.one_of(st.dictionaries(st.sampled_from(FIELDS), values, max_size=5), values)

RAW = [
    b"", b"\x00", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{", b"{}{}", b"{'inputs': 'a'}", b'{"inputs": NaN}',
    b'{"inputs": [Infinity]}', b'{"inputs": -}', b'{"inputs": 1e999}', b'{"inputs": "\\ud800"}',
    b'{"inputs": "\xed\xa0\x80"}',
    b'{"inputs": "a",}', b'{"inputs": "a" /* */}', b'{"inputs": "\n"}', b'{"inputs": "a", "inputs": 7}', b"[" * 5_000,
    b'{"a":' * 5_000, b"9" * 5_000, b'{"inputs": ' + b"[" * 1_500 + b"]" * 1_500 + b"}", b'"' + b"\\u0000" * 500 + b'"',
]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(Settings(max_client_batch_size=5), tiny_engine(tmp_path_factory.mktemp("tiny")))
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        yield client


def check(client: TestClient, path: str, content: bytes) -> None:
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 413, 422)
    body: Any = answer.json()
    if answer.status_code == 200:
        return
    error = body["error"]
    assert SECRET not in answer.text
    if path.startswith("/v1/"):
        assert error.keys() == {"message", "type", "param", "code"}
        return
    assert body.keys() == {"error", "error_type"}
    assert isinstance(error, str)
    assert 0 < len(error) < 1_000


@settings(deadline=None)
@given(path=st.sampled_from(ROUTES), body=bodies)
def test_any_json(client: TestClient, path: str, body: object) -> None:
    check(client, path, json.dumps(body).encode())


@settings(deadline=None)
@given(path=st.sampled_from(ROUTES), content=st.binary(max_size=40))
def test_any_bytes(client: TestClient, path: str, content: bytes) -> None:
    check(client, path, content)


@pytest.mark.parametrize("content", RAW, ids=lambda content: repr(content[:24]))
@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
def test_what_is_no_json_or_hardly(client: TestClient, path: str, content: bytes) -> None:
    check(client, path, content)
