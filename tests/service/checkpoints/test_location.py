from __future__ import annotations

import re
import threading
from pathlib import Path

import httpx
import pytest

from service.checkpoints.hub import HubError
from service.checkpoints.location import Location, locate
from tests.fake_hub import FakeHub
from tests.live_server import live_server
from tests.service.checkpoints.conftest import REPOSITORY


def test_a_name_on_the_hub_is_downloaded_and_its_revision_is_the_commit(hub: FakeHub, cache: Path) -> None:
    location = locate(REPOSITORY, revision="main", offline=False)
    assert location.revision == hub.commit
    assert location.folder.is_relative_to(cache)
    assert (location.folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    hub.asked.clear()
    assert locate(REPOSITORY, revision=None, offline=True) == location
    assert hub.asked == []


@pytest.mark.usefixtures("cache")
def test_a_folder_wins_over_the_hub(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(REPOSITORY).mkdir(parents=True)
    assert locate(REPOSITORY, revision="mine", offline=False) == Location(folder=Path(REPOSITORY), revision="mine")
    assert hub.asked == []


@pytest.mark.parametrize("name", ["weights/tiny-bert", "./some-org/tiny-bert", "/models/tiny-bert", "a/b/c", ".."])
@pytest.mark.usefixtures("cache")
def test_a_path_is_not_looked_for_on_the_hub(name: str, hub: FakeHub) -> None:
    assert locate(name, revision=None, offline=False) == Location(folder=Path(name), revision=None)
    assert hub.asked == []


@pytest.mark.usefixtures("cache")
def test_what_is_neither_is_told(hub: FakeHub) -> None:
    with pytest.raises(HubError) as caught:
        locate("some-org/other", revision=None, offline=False)
    assert str(caught.value).startswith(
        f"some-org/other is no folder here, and from the hub: there is no some-org/other at {hub.url}, or it is private"
    )


def test_a_server_of_a_name_is_alive_while_it_downloads_and_tells_the_commit(
    hub: FakeHub, environment: dict[str, str], tmp_path: Path
) -> None:
    hub.stall.add("model.safetensors")
    statuses: dict[str, int] = {}

    def probe_during_the_download() -> None:
        hub.stalled.wait(60)
        found = re.search(r"http://127\.0\.0\.1:\d+", (tmp_path / "server.log").read_text())
        assert found
        statuses.update({name: httpx.get(f"{found[0]}/health/{name}").status_code for name in ("live", "ready")})
        hub.release.set()

    probing = threading.Thread(target=probe_during_the_download, daemon=True)
    probing.start()
    with live_server(tmp_path, "--model-id", REPOSITORY, "--json-output", environment=environment) as server:
        info = httpx.get(f"{server.url}/info").json()
        vectors = httpx.post(f"{server.url}/embed", json={"inputs": "hello"}).json()
    assert statuses == {"live": 200, "ready": 503}
    assert (info["model_id"], info["revision"], info["model_sha"]) == (REPOSITORY, hub.commit, hub.commit)
    assert len(vectors[0]) == info["hidden_size"]
    assert all(line.startswith("{") for line in server.log.read_text().splitlines())
