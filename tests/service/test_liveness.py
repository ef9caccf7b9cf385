"""`/health/live` answers at once, whatever else a live server of a real, tiny model does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from bert_core import save_pretrained
from tests.live_server import LiveServer, live_server
from tests.tiny import tiny_config, tiny_model, write_tiny_vocabulary

BOUND_SECONDS = 0.1

TRIES = 4
"""A machine that is busy with other things pauses a process too, but hardly each time."""

BODY_BYTES = 1_900_000

MAXIMAL: dict[str, tuple[str, dict[str, Any], int]] = {
    "vectors": ("/embed", {"inputs": ["a"] * 2048}, 200),
    "vectors in the form of OpenAI": ("/v1/embeddings", {"model": "", "input": ["a"] * 2048}, 200),
    "vectors in base64": ("/embed", {"inputs": ["a"] * 2048, "encoding_format": "base64"}, 200),
    "vectors of long texts": ("/embed", {"inputs": ["the " * 230] * 2000, "dimensions": 1}, 200),
    "token vectors": ("/embed_all", {"inputs": ["the " * 510] * 3}, 200),
    "sparse vectors": ("/embed_sparse", {"inputs": ["the king"] * 2048}, 200),
    "similarities": ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"] * 2047}}, 200),
    "tokens": ("/tokenize", {"inputs": "the " * 99_000}, 200),
    "words of ids": ("/decode", {"ids": [[7] * 99_000] * 6}, 200),
    "predictions": ("/fill-mask", {"inputs": ["[MASK] a"] * 2048, "top_k": 15}, 200),
    "long predictions": ("/fill-mask", {"inputs": "é\x01" * 80_000 + " [MASK]", "top_k": 90}, 200),
    "targets": ("/fill-mask", {"inputs": ["[MASK] a"] * 2048, "targets": [*"abcdefgh", "kl", "mno"], "top_k": 1}, 200),
    "joint predictions": ("/fill-mask", {"inputs": "[MASK] " * 8, "top_k": 8, "strategy": "joint"}, 200),
    "candidates": (
        "/next-sentence",
        {"text": "the " * 450_000, "candidates": ["a"] * 100, "truncate": True, "truncation_direction": "left"},
        200,
    ),
    "pairs": ("/next-sentence", {"inputs": [["the " * 50, "a " * 40]] * 2048, "truncate": True}, 200),
    "one word": ("/embed", {"inputs": "a" * BODY_BYTES}, 200),
    "too many texts": ("/embed", {"inputs": [""] * (BODY_BYTES // 3)}, 422),
    "too many ids": ("/embed", {"inputs": [1] * (BODY_BYTES // 2)}, 422),
    "too many pairs": ("/next-sentence", {"inputs": [["", ""]] * (BODY_BYTES // 8)}, 422),
    "too many fields": ("/fill-mask", {f"a{number}": 1 for number in range(BODY_BYTES // 12)}, 422),
    "wrong targets": ("/fill-mask", {"inputs": "[MASK]", "targets": [1] * (BODY_BYTES // 2)}, 422),
    "wrong candidates": ("/next-sentence", {"text": "", "candidates": [1] * (BODY_BYTES // 2)}, 422),
    "lists of lists": ("/embed", {"inputs": [[[[["a"]]]]] * (BODY_BYTES // 16)}, 422),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("server")
    config = tiny_config(
        hidden_size=768, num_hidden_layers=1, num_attention_heads=12, max_position_embeddings=512, vocab_size=103
    )
    save_pretrained(tiny_model(config), folder / "model")
    write_tiny_vocabulary(folder / "model")
    flags = ["--model-id", str(folder / "model"), "--max-concurrent-requests", "4096", "--request-timeout-seconds", "5"]
    with live_server(folder, *flags, "--device", "cpu") as running:
        yield running


def ask(url: str, method: str, path: str, body: bytes | None = None) -> int:
    """The status of an answer, by a client that holds up no thread."""
    parts = urlsplit(url)
    with closing(HTTPConnection(str(parts.hostname), parts.port, timeout=60)) as connection:
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def longest_wait(url: str, ended: threading.Event) -> float:
    """The longest that anybody waited for an answer of `/health/live` until the end."""
    longest = 0.0
    while not ended.is_set():
        started = time.perf_counter()
        assert ask(url, "GET", "/health/live") == 200
        longest = max(longest, time.perf_counter() - started)
        time.sleep(0.002)
    return longest


@pytest.mark.parametrize("kind", MAXIMAL)
def test_it_is_alive_during_a_request_of_the_largest_size(server: LiveServer, kind: str) -> None:
    path, body, status = MAXIMAL[kind]
    content = orjson.dumps(body)
    assert len(content) < 2_000_000
    waits: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        while not waits or (min(waits) > BOUND_SECONDS and len(waits) < TRIES):
            ended = threading.Event()
            wait = pool.submit(longest_wait, server.url, ended)
            answered = ask(server.url, "POST", path, content)
            ended.set()
            waits.append(wait.result())
            assert answered in (status, 504)  # a slow machine may be late with the answer
    assert min(waits) < BOUND_SECONDS
