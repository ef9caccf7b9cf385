from __future__ import annotations

import pytest

from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import serving

KEY = "sesame-ключ"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer  {KEY}", 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        (f"Bearer {KEY}x", 401),
        (f"Bearer {KEY[:-1]}", 401),
    ],
)
def test_the_key_must_be_right(header: str | None, status: int) -> None:
    with serving(api_key=KEY) as client:
        headers = {} if header is None else {b"authorization": header.encode()}
        answer = client.post("/embed", json={"inputs": "a"}, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json() == {
            "error": "the API key is missing or wrong; send the header Authorization: Bearer KEY",
            "error_type": "Unauthorized",
        }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/health/live", 200),
        ("GET", "/health/ready", 200),
        ("HEAD", "/health/ready", 200),
        ("GET", "/metrics", 200),
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/docs", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/static/docs/docs.js", 200),
        ("GET", "/info", 401),
        ("POST", "/", 401),
        ("POST", "/fill-mask", 401),
        ("POST", "/next-sentence", 401),
        ("POST", "/health", 401),
        ("GET", "/no-such-route", 401),
        ("GET", "/healthy", 401),
    ],
)
def test_what_is_open_without_a_key(method: str, path: str, status: int) -> None:
    with serving(api_key=KEY) as client:
        assert client.request(method, path).status_code == status


@pytest.mark.parametrize(("path", "status"), [("/health/live", 200), ("/static/docs/docs.js", 200), ("/info", 401)])
def test_open_paths_below_a_prefix(path: str, status: int) -> None:
    with serving(api_key=KEY, root_path="/bert") as client:
        assert client.get(f"/bert{path}").status_code == status


def test_refusals_are_counted() -> None:
    with serving(api_key=KEY) as client:
        client.get("/info")
        client.post("/embed", json={"inputs": "a"}, headers={"authorization": "Bearer wrong"})
        client.get("/health")
        lines = client.get("/metrics").text.splitlines()
    assert 'te_request_failure{err="unauthorized"} 2.0' in lines


def test_without_a_key_everything_is_open() -> None:
    with serving() as client:
        assert client.get("/info").status_code == 200


def test_the_key_is_not_shown() -> None:
    settings = Settings.model_validate({"api_key": KEY})
    assert KEY not in repr(settings)
    assert KEY not in repr(create_app(settings, FakeEngine()).user_middleware)
