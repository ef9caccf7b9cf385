from __future__ import annotations

from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from bert_core import save_pretrained
from service.app import create_app, load_engine
from service.settings import Settings, SettingsError
from tests.service.fake_engine import FakeEngine
from tests.service.serving import recorded_clients, serving, wait_until
from tests.tiny import tiny_model, write_tiny_vocabulary


@pytest.mark.parametrize(
    ("forwarded_for", "trusted", "client"),
    [
        (None, "10.0.0.0/8", "10.0.0.9"),
        ("192.0.2.1", "10.0.0.0/8", "192.0.2.1"),
        ("203.0.113.5, 192.0.2.1", "10.0.0.0/8", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.3", "10.0.0.0/8", "192.0.2.1"),
        ("192.0.2.1", "10.0.0.1", "10.0.0.9"),
        ("192.0.2.1", "", "10.0.0.9"),
    ],
)
def test_clients_are_told_apart_by_the_address_that_a_trusted_proxy_saw(
    forwarded_for: str | None, trusted: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = recorded_clients(monkeypatch)
    app = create_app(Settings.model_validate({"trusted_proxies": trusted}), FakeEngine())
    with TestClient(app, client=("10.0.0.9", 999)) as http:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        headers = {} if forwarded_for is None else {"x-forwarded-for": forwarded_for}
        assert http.post("/embed", json={"inputs": "a"}, headers=headers).status_code == 200
    assert seen == [client]


def test_browsers_may_call_from_the_origins_that_are_set_and_read_refusals() -> None:
    with serving(cors_allow_origin="https://a.example", api_key="sesame") as client:
        asked = client.options(
            "/embed",
            headers={
                "origin": "https://a.example",
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type",
            },
        )
        refused = client.post("/embed", json={"inputs": "a"}, headers={"origin": "https://a.example"})
        foreign = client.post("/embed", json={"inputs": "a"}, headers={"origin": "https://b.example"})
    assert asked.status_code == 200
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://a.example"
    assert "access-control-allow-origin" not in foreign.headers
    exposed = refused.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "x-total-time", "x-truncated", "retry-after", "x-should-retry"} <= set(exposed)
    assert "*" not in exposed


def test_no_origin_may_call_by_default() -> None:
    with serving() as client:
        answer = client.get("/health", headers={"origin": "https://a.example"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Settings(max_batch_tokens=12),
            "--max-batch-tokens (MAX_BATCH_TOKENS) is 12 and the model's max_input_length is 13: it must hold that",
        ),
        (
            Settings(max_queue_tokens=12),
            "--max-queue-tokens (MAX_QUEUE_TOKENS) is 12 and the model's max_input_length is 13: it must hold that",
        ),
    ],
)
def test_a_model_whose_longest_text_could_never_pass_is_not_served(settings: Settings, message: str) -> None:
    app = create_app(settings, FakeEngine())
    lifecycle = app.state.lifecycle
    with TestClient(app) as client:
        wait_until(lambda: lifecycle.failure is not None)
        answer = client.get("/health/ready")
    assert isinstance(lifecycle.failure, SettingsError)
    assert str(lifecycle.failure) == message
    assert answer.status_code == 503


@pytest.mark.parametrize(("setting", "budget"), [(None, 101), (37, 37)])
def test_the_token_budget_is_the_setting_or_what_the_warm_up_found(setting: int | None, budget: int) -> None:
    with serving(FakeEngine(budget=101), max_batch_tokens=setting) as client:
        assert client.get("/info").json()["max_batch_tokens"] == budget


def test_a_body_of_the_largest_size_has_room_in_the_queue_by_default() -> None:
    """Four bytes a token; the budget of a small CPU would give less."""
    with serving(FakeEngine(budget=13), payload_limit=64_000) as client:
        assert client.post("/embed", json={"inputs": ["www " * 13] * 1100}).status_code == 200
    with serving(FakeEngine(budget=13), payload_limit=64_000, max_queue_tokens=14_299) as client:
        assert client.post("/embed", json={"inputs": ["www " * 13] * 1100}).status_code == 413


def test_the_checkpoint_that_the_settings_name_is_loaded_as_they_say(tmp_path: Path) -> None:
    save_pretrained(tiny_model(), tmp_path)
    write_tiny_vocabulary(tmp_path)
    settings = Settings(
        model_id=str(tmp_path), served_model_name="tiny", revision="v3", device="cpu", dtype="float32", pooling="max"
    )
    app = create_app(settings)
    with TestClient(app) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        info = client.get("/info").json()
        [vector] = client.post("/embed", json={"inputs": "hello world"}).json()
        predictions = client.post("/fill-mask", json={"inputs": "paris is [MASK]", "top_k": 7}).json()
    shown = {name: info[name] for name in ("model_id", "revision", "device", "dtype", "pooling", "max_input_length")}
    assert shown == {
        "model_id": "tiny",
        "revision": "v3",
        "device": "cpu",
        "dtype": "float32",
        "pooling": "max",
        "max_input_length": 41,
    }
    assert len(vector) == 20
    assert len(predictions) == 7


@pytest.mark.parametrize(
    ("cpus", "workers", "cpu_threads", "threads"), [(7, 3, None, 2), (2, 4, None, 1), (7, 3, 5, 5)]
)
def test_workers_share_the_devices(
    cpus: int, workers: int, cpu_threads: int | None, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []

    def choose(_: str, *, worker: int) -> torch.device:
        chosen.append(worker)
        return torch.device("cpu")

    save_pretrained(tiny_model(), tmp_path)
    write_tiny_vocabulary(tmp_path)
    monkeypatch.setattr("service.engine.device.available_cpus", lambda: cpus)
    monkeypatch.setattr("service.engine.engine.choose_device", choose)
    settings = Settings(model_id=str(tmp_path), workers=workers, cpu_threads=cpu_threads)
    engine = load_engine(settings, worker=1)
    assert chosen == [1]
    assert engine.threads == threads
