from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.api.pages import STATIC_FOLDER
from tests.service.serving import serving

PLAYGROUND = STATIC_FOLDER / "playground"
LARGEST_BYTES = 40 * 1024


@pytest.mark.parametrize("root_path", ["", "/bert"])
def test_the_docs_page_loads_everything_from_here(root_path: str) -> None:
    with serving(root_path=root_path) as client:
        page = client.get(f"{root_path}/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        places = re.findall(r'(?:src|href)="([^"]*)"', page.text)
        assert len(places) == 4
        for place in places:
            assert not re.match(r"[a-z]+:|/", place)
            assert client.get(f"{root_path}/{place}").status_code == 200
        script = client.get(f"{root_path}/static/docs/docs.js").text
        style = client.get(f"{root_path}/static/docs/swagger-ui.css").text
    assert 'url: "openapi.json"' in script
    assert "validatorUrl: null" in script
    assert "://" not in page.text
    assert "@import" not in style
    assert set(re.findall(r"""url\(\s*["']?([^:#)]*)""", style)) == {"data"}


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/docs/../../settings.py"])
def test_static_files_end_at_their_folder(path: str) -> None:
    with serving() as client:
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("root_path", ["", "/bert"])
def test_the_playground_is_at_the_root(root_path: str) -> None:
    with serving(root_path=root_path) as client:
        page = client.get(f"{root_path}/", follow_redirects=False)
        head = client.head(f"{root_path}/")
        refused = client.put(f"{root_path}/")
        places = re.findall(r'(?:src|href)="([^"#]*)"', page.text)
        assert len(places) == 5
        for place in places:
            assert not re.match(r"[a-z]+:|/", place)
            assert client.get(f"{root_path}/{place}").status_code == 200
    assert (page.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-length"] == page.headers["content-length"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_the_playground_may_load_nothing_from_elsewhere_and_runs_nothing_inline() -> None:
    with serving() as client:
        page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]* src=)", page.text)
    for file in PLAYGROUND.glob("*"):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|insertAdjacentHTML", file.read_text()), file


def test_the_playground_is_small() -> None:
    assert sum(file.stat().st_size for file in PLAYGROUND.iterdir()) < LARGEST_BYTES


@pytest.mark.parametrize(
    ("place", "content_type"),
    [
        ("static/playground/playground.js", "text/javascript; charset=utf-8"),
        ("static/playground/style.css", "text/css; charset=utf-8"),
        ("static/playground/icon.svg", "image/svg+xml"),
        ("static/docs/favicon-32x32.png", "image/png"),
    ],
)
def test_files_have_their_type_and_are_asked_for_again(place: str, content_type: str) -> None:
    with serving() as client:
        answer = client.get(place)
        again = client.get(place, headers={"if-none-match": answer.headers["etag"]})
    assert answer.headers["content-type"] == content_type
    assert answer.headers["cache-control"] == again.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == (STATIC_FOLDER / Path(place).relative_to("static")).read_bytes()
    assert (again.status_code, again.content) == (304, b"")


def test_the_type_of_scripts_is_not_left_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starlette.responses.guess_type", lambda *_: ("text/plain", None))
    with serving() as client:
        answer = client.get("static/playground/playground.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_page_itself_is_asked_for_again() -> None:
    with serving() as client:
        etag = client.get("/").headers["etag"]
        again = client.get("/", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
