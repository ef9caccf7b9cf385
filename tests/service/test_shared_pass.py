"""Requests of several clients, over HTTP, in one pass of a real model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from starlette.testclient import TestClient
from torch import Tensor

from bert_core import BertForPreTraining
from bert_core.packing import PackedTokens, WantedRows
from service.app import create_app
from service.settings import Settings
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.service.serving import wait_until
from tests.tiny import tiny_model

TOLERANCE = 1e-5

REQUESTS = {
    "/fill-mask": {"inputs": "paris is the [MASK] of france.", "top_k": 3},
    "/next-sentence": {"inputs": {"text": "i like cookies", "text_pair": "do you like them?"}},
    "/embed": {"inputs": "hello world, how are you?"},
    "/embed_all": {"inputs": "the queen"},
    "/embed_sparse": {"inputs": "cookies"},
}


class HeldTrunk:
    """Stands in for `BertModel.encode`: notes what comes, and holds the first pass until it is let go."""

    def __init__(self, model: BertForPreTraining) -> None:
        self._encode = model.bert.encode
        self.lengths: list[list[int]] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, packed: PackedTokens, *, wanted: WantedRows | None = None) -> Tensor:
        self.lengths.append(list(packed.lengths))
        self.entered.set()
        assert self.let_go.wait(10)
        return self._encode(packed, wanted=wanted)


@contextmanager
def served(folder: Path, model: BertForPreTraining) -> Iterator[TestClient]:
    app = create_app(Settings(), tiny_engine(folder, model))
    with TestClient(app) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        yield client


def ask(client: TestClient, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_close(first: Any, second: Any) -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert_close(value, second[key])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_close(one, other)
    elif isinstance(first, float):
        assert first == pytest.approx(second, abs=10 * TOLERANCE)
    else:
        assert first == second


def test_one_item_of_each_task_from_several_clients_makes_one_pass_with_the_answers_of_each_alone(
    tmp_path: Path,
) -> None:
    model = tiny_model(ENGINE_CONFIG)
    with served(tmp_path, model) as client, ThreadPoolExecutor(6) as clients:
        alone = {path: ask(client, path, body) for path, body in REQUESTS.items()}
        trunk = HeldTrunk(model)
        with mock.patch.object(model.bert, "encode", trunk):
            first = clients.submit(ask, client, "/embed", {"inputs": "king"})
            assert trunk.entered.wait(10)
            waiting = {path: clients.submit(ask, client, path, body) for path, body in REQUESTS.items()}
            wait_until(lambda: "te_queue_size 5.0" in client.get("/metrics").text)
            trunk.let_go.set()
            answers = {path: future.result(10) for path, future in waiting.items()}
            first.result(10)
    assert len(trunk.lengths) == 2
    assert [len(lengths) for lengths in trunk.lengths] == [1, 5]
    assert_close(answers, alone)


def test_a_text_has_the_same_vector_alone_in_a_list_and_beside_other_clients(tmp_path: Path) -> None:
    text, long = "apple tv", "the king of france is a queen. " * 4
    with served(tmp_path, tiny_model(ENGINE_CONFIG)) as client, ThreadPoolExecutor(16) as clients:
        alone = np.array(ask(client, "/embed", {"inputs": text})[0])
        lists = [[text, "hello"], [text, long], [*["a b"] * 31, text]]
        vectors = [ask(client, "/embed", {"inputs": texts})[texts.index(text)] for texts in lists]
        many = [text if number % 3 else long[: number * 5] + "a" for number in range(64)]
        futures = [clients.submit(ask, client, "/embed", {"inputs": one}) for one in many]
        vectors += [future.result(30)[0] for future, one in zip(futures, many, strict=True) if one == text]
    assert len(vectors) == 3 + 42
    for vector in vectors:
        assert np.abs(np.array(vector) - alone).max() <= TOLERANCE


def test_a_long_text_among_short_ones_changes_none_of_them(tmp_path: Path) -> None:
    texts = ["hi"] * 40 + ["the " * 39] + ["hi"] * 23
    with served(tmp_path, tiny_model(ENGINE_CONFIG)) as client, ThreadPoolExecutor(16) as clients:
        short, long = (ask(client, "/embed", {"inputs": text})[0] for text in ("hi", texts[40]))
        expected = np.array([long if text != "hi" else short for text in texts])
        together = np.array(ask(client, "/embed", {"inputs": texts}))
        at_once = [clients.submit(ask, client, "/embed", {"inputs": text}) for text in texts]
        answers = np.array([future.result(30)[0] for future in at_once])
        refused = client.post("/embed", json={"inputs": [*texts, "the " * 40], "truncate": False})
    assert np.abs(together - expected).max() <= TOLERANCE
    assert np.abs(answers - expected).max() <= TOLERANCE
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("inputs[64]: the text has 42 tokens and the limit is 41")


def test_results_of_a_long_list_come_in_its_order(tmp_path: Path) -> None:
    texts = [f"{'a ' * (number * 7 % 37)}{number % 10} {number // 10 % 10} {number // 100}" for number in range(300)]
    with served(tmp_path, tiny_model(ENGINE_CONFIG)) as client:
        together = ask(client, "/embed", {"inputs": texts, "truncate": True})
        alone = [ask(client, "/embed", {"inputs": text, "truncate": True})[0] for text in texts]
    assert np.abs(np.array(together) - np.array(alone)).max() <= TOLERANCE
