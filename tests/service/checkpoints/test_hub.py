from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from service.checkpoints.hub import HubError, fetch, is_repository_name
from tests.fake_hub import GATED, NO_REPOSITORY, FakeHub, Fault
from tests.service.checkpoints.conftest import REPOSITORY


def fetch_config(revision: str | None = None, *, offline: bool = False) -> Path:
    return fetch(REPOSITORY, revision=revision, patterns=["config.json"], offline=offline).folder / "config.json"


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased", "a/B_1.2", "0/0"])
def test_names_of_repositories(name: str) -> None:
    assert is_repository_name(name)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a/b/c", "./a", "../a", "a b", "a/..", "~/a", "C:\\a", "a\n", "ä/b", "-a/b", "a" * 97]
)
def test_what_is_no_name_of_a_repository(name: str) -> None:
    assert not is_repository_name(name)


@pytest.mark.usefixtures("cache")
def test_only_the_files_asked_for_come_and_only_once(hub: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    for revision in (None, "main", hub.commit):
        snapshot = fetch(REPOSITORY, revision=revision, patterns=["config.json", "[0-9]*_*/*"], offline=False)
        assert snapshot.revision == hub.commit
        assert (snapshot.folder / "config.json").read_bytes() == hub.files["config.json"]
    assert hub.downloaded() == ["1_Pooling/config.json", "config.json"]
    assert capfd.readouterr().err == ""  # no bars where nobody looks


@pytest.mark.usefixtures("cache")
def test_what_is_in_the_cache_serves_offline_and_without_a_hub(hub: FakeHub) -> None:
    content = fetch_config().read_bytes()
    hub.asked.clear()
    assert fetch_config(offline=True).read_bytes() == content
    assert hub.asked == []
    hub.faults["."] = Fault(503)
    assert fetch_config().read_bytes() == content


@pytest.mark.usefixtures("cache")
def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_sesame")
    fetch(REPOSITORY, revision=None, patterns=["model.safetensors"], offline=False)
    tokens = {asked.path.startswith("/cdn/"): asked.authorization for asked in hub.asked}
    assert tokens == {False: "Bearer hf_sesame", True: None}


@pytest.mark.usefixtures("cache")
def test_a_connection_that_breaks_is_resumed_where_it_broke(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1)
    hub.cut.add("model.safetensors")
    snapshot = fetch(REPOSITORY, revision=None, patterns=["model.safetensors"], offline=False)
    content = hub.files["model.safetensors"]
    assert (snapshot.folder / "model.safetensors").read_bytes() == content
    assert [asked.range for asked in hub.asked if asked.path.startswith("/cdn/")] == [
        None,
        f"bytes={len(content) // 2}-",
    ]


@pytest.mark.parametrize(
    ("place", "fault", "said"),
    [
        (
            "/revision/",
            NO_REPOSITORY,
            "there is no some-org/tiny-bert at HUB, or it is private: check the name, or set",
        ),
        (
            "HEAD",
            GATED,
            "HUB/some-org/tiny-bert is gated: accept its terms there, then set HF_TOKEN to a token of that",
        ),
        (
            "/revision/",
            Fault(401),
            "HUB answered 401 when asked for some-org/tiny-bert: HF_TOKEN must be set to a token",
        ),
        ("HEAD", Fault(403), "HUB answered 403 when asked for some-org/tiny-bert: HF_TOKEN must be set to a token"),
        ("/revision/", Fault(429), "HUB answered 429 when asked for some-org/tiny-bert: wait, then try again"),
        ("/revision/", Fault(500), "HUB answered 500 when asked for some-org/tiny-bert: wait, then try again"),
        ("GET .*/resolve/", Fault(404), "HUB answered 404 when asked for some-org/tiny-bert"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_refusals_are_told_in_one_line(hub: FakeHub, place: str, fault: Fault, said: str) -> None:
    hub.faults[place] = fault
    with pytest.raises(HubError) as caught:
        fetch_config()
    assert str(caught.value).startswith(said.replace("HUB", hub.url))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_a_revision_that_is_not_there(hub: FakeHub) -> None:
    with pytest.raises(HubError, match=f"^some-org/tiny-bert at {hub.url} has no revision 'v9'$"):
        fetch_config("v9")


def test_what_is_not_in_the_cache_is_missing_offline(hub: FakeHub, cache: Path) -> None:
    said = (
        f"^some-org/tiny-bert is not complete in {cache}, and the hub is not asked \\(--offline or HF_HUB_OFFLINE\\)$"
    )
    with pytest.raises(HubError, match=said):
        fetch_config(offline=True)
    assert hub.asked == []
    fetch_config()
    with pytest.raises(HubError, match=said):
        fetch(REPOSITORY, revision=None, patterns=["vocab.txt"], offline=True)


@pytest.mark.usefixtures("cache")
def test_the_offline_mode_of_the_client_is_told_like_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="the hub is not asked"):
        fetch_config()


@pytest.mark.usefixtures("cache")
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "http://127.0.0.1:1"
    monkeypatch.setattr(constants, "ENDPOINT", nobody)
    with pytest.raises(HubError, match=f"^cannot get some-org/tiny-bert from {nobody}: ConnectError: .*refused$"):
        fetch_config()


@pytest.mark.usefixtures("cache")
def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/blob")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(HubError, match="^cannot write /cache/blob: No space left on device$"):
        fetch_config()


@pytest.mark.usefixtures("cache")
def test_a_name_that_the_client_refuses() -> None:
    with pytest.raises(HubError, match="^cannot get a--b from .*: HFValidationError: Cannot have -- or .. in repo_id"):
        fetch("a--b", revision=None, patterns=["*"], offline=False)


def test_the_client_is_not_imported_before_it_is_needed() -> None:
    modules = "service.__main__, service.app, service.checkpoints.fetching"
    code = f"import {modules}, sys; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
