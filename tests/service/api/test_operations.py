from __future__ import annotations

import threading
from dataclasses import replace

from starlette.testclient import TestClient

from service import __version__
from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import FAKE_INFO, PATIENCE_SECONDS, FakeEngine
from tests.service.serving import serving

NOT_READY = {"error": "the model is warming up", "error_type": "Unhealthy"}


def test_while_the_model_is_not_ready_only_it_is_unavailable() -> None:
    warming, warm = threading.Event(), threading.Event()

    def warm_up() -> None:
        warming.set()
        assert warm.wait(PATIENCE_SECONDS)

    with TestClient(create_app(Settings(), FakeEngine(warm_up_with=warm_up))) as client:
        assert warming.wait(PATIENCE_SECONDS)
        for path in ("/health/live", "/docs", "/openapi.json", "/metrics"):
            assert client.get(path).status_code == 200
        for path in ("/health", "/health/ready", "/info"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()) == (503, NOT_READY)
            assert answer.headers["retry-after"] == "5"
        answer = client.post("/embed", json={"inputs": "a"})
        assert (answer.status_code, answer.json()) == (503, NOT_READY)
        assert answer.headers["retry-after"] == "5"
        warm.set()


def test_health_when_ready() -> None:
    with serving() as client:
        assert client.get("/health/live").json() == {"status": "alive"}
        assert client.get("/health/ready").json() == client.get("/health").json() == {"status": "ready"}
        assert client.head("/health").status_code == 200


def test_info_has_the_fields_of_tei_and_ours() -> None:
    info = replace(
        FAKE_INFO,
        capabilities={**FAKE_INFO.capabilities, "next_sentence": False},
        heads_missing=("pooler", "nsp"),
        device="cuda:1",
        dtype="float16",
    )
    with serving(FakeEngine(info=info), max_client_batch_size=37, max_top_k=7, auto_truncate=False) as client:
        content = client.get("/info").json()
    versions = content.pop("versions")
    assert {"python", "torch", "tokenizers"} <= versions.keys()
    assert isinstance(content.pop("tokenization_workers"), int)
    assert content == {
        "model_id": "fake",
        "model_sha": "v7",
        "model_dtype": "float16",
        "model_type": {"embedding": {"pooling": "mean"}},
        "max_concurrent_requests": 4096,
        "max_input_length": 13,
        "max_batch_tokens": 101,
        "max_batch_requests": None,
        "max_client_batch_size": 37,
        "auto_truncate": False,
        "version": __version__,
        "sha": None,
        "docker_label": None,
        "capabilities": {**FAKE_INFO.capabilities, "next_sentence": False},
        "heads_missing": ["pooler", "nsp"],
        "device": "cuda:1",
        "dtype": "float16",
        "pooling": "mean",
        "revision": "v7",
        "max_embed_length": 11,
        "max_top_k": 7,
        "hidden_size": 5,
        "vocab_size": 99,
        "parameters": 1234,
        "mask_token": "[MASK]",
        "attention": "sdpa",
        "least_embedding_cosine": 0.9995,
        "least_top1_agreement": 0.99,
    }


def test_metrics_are_prometheus_text() -> None:
    with serving() as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "te_queue_size 0.0" in answer.text.splitlines()
