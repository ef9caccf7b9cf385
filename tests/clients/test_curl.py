"""Plain `curl`: what the README does not show. Its own commands are run by tests/test_readme.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, assert_same
from tests.live_server import LiveServer


def curl(*arguments: str) -> str:
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--noproxy", "*", *arguments],
        capture_output=True, check=True, text=True, timeout=60,
    ).stdout  # fmt: skip


def post(url: str, body: object) -> Any:
    return json.loads(curl(url, "--json", json.dumps(body)))


def test_each_family_of_routes(server: LiveServer, vectors: FloatVector) -> None:
    [best] = post(f"{server.url}/fill-mask", {"inputs": "She drank a cup of [MASK].", "top_k": 1})
    assert best["token_str"] == "coffee"
    assert_same(post(f"{server.url}/embed", {"inputs": TEXTS}), vectors)
    data = post(f"{server.url}/v1/embeddings", {"model": "any", "input": TEXTS})["data"]
    assert_same([item["embedding"] for item in data], vectors)
    assert json.loads(curl(f"{server.url}/v1/models"))["data"][0]["object"] == "model"


def test_a_body_from_a_file_in_parts_without_a_length(server: LiveServer, vectors: FloatVector, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"inputs": TEXTS}))
    answer = curl(
        f"{server.url}/embed", "--data-binary", f"@{body}",
        "--header", "content-type: application/json", "--header", "transfer-encoding: chunked",
    )  # fmt: skip
    assert_same(json.loads(answer), vectors)


def test_its_default_content_type_is_refused_in_words(server: LiveServer) -> None:
    answer = json.loads(curl(f"{server.url}/embed", "--data", '{"inputs": "a"}'))
    assert answer == {"error": "the content type must be application/json", "error_type": "UnsupportedMediaType"}
