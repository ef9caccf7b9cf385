from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from service.__main__ import main
from tests.fake_hub import GATED, NO_REPOSITORY, FakeHub, Fault, files_of
from tests.live_server import ROOT
from tests.service.checkpoints.conftest import REPOSITORY


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own."""
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("cache")
def test_a_checkpoint_is_downloaded_whole_and_the_way_to_serve_it_told(
    hub: FakeHub, checkpoint: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.files |= {"onnx/model.onnx": b"copy", "pytorch_model.bin": b"copy"}
    assert main(["download", REPOSITORY]) == 0
    target = there / "weights" / "tiny-bert"
    assert files_of(target) == files_of(checkpoint)
    assert os.listdir(target.parent) == ["tiny-bert"]
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert capsys.readouterr().out == (
        f"weights/tiny-bert: {REPOSITORY} at {hub.commit}\n"
        f"bert-service serve --model-id weights/tiny-bert --revision {hub.commit}\n"
    )


@pytest.mark.usefixtures("cache")
def test_others_may_read_it_as_the_umask_says(there: Path) -> None:
    before = os.umask(0o027)
    try:
        assert main(["download", REPOSITORY, "--to", "deep/er"]) == 0
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in [there / "deep/er", *(there / "deep/er").iterdir()]}
    assert modes == {True: 0o750, False: 0o640}


@pytest.mark.usefixtures("cache")
def test_offline_it_comes_from_the_cache(hub: FakeHub, there: Path) -> None:
    assert main(["download", REPOSITORY, "--offline"]) == 1
    assert main(["download", REPOSITORY]) == 0
    hub.asked.clear()
    assert main(["download", REPOSITORY, "--offline", "--to", "again"]) == 0
    assert hub.asked == []
    assert files_of(there / "again") == files_of(there / "weights" / "tiny-bert")


@pytest.mark.parametrize(
    ("place", "fault", "flags", "said"),
    [
        ("/revision/", NO_REPOSITORY, [], "there is no some-org/tiny-bert at HUB, or it is private"),
        ("HEAD", GATED, [], "HUB/some-org/tiny-bert is gated"),
        ("/revision/", Fault(429), [], "HUB answered 429 when asked for some-org/tiny-bert: wait, then try again"),
        ("GET /cdn/", Fault(500), [], "HUB answered 500 when asked for some-org/tiny-bert: wait, then try again"),
        ("never", Fault(500), ["--revision", "v9"], "some-org/tiny-bert at HUB has no revision 'v9'"),
        ("never", Fault(500), ["--to", "file/below"], "cannot write file: "),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_failure_is_one_line_and_leaves_nothing(
    hub: FakeHub,
    there: Path,
    capsys: pytest.CaptureFixture[str],
    place: str,
    fault: Fault,
    flags: list[str],
    said: str,
) -> None:
    (there / "file").touch()
    hub.faults[place] = fault
    assert main(["download", REPOSITORY, *flags]) == 1
    told = capsys.readouterr()
    assert told.err.startswith(f"bert-service download: {said.replace('HUB', hub.url)}")
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert os.listdir(there) == ["file"]


@pytest.mark.usefixtures("cache")
def test_a_checkpoint_that_cannot_be_served_is_not_left_behind(
    hub: FakeHub, checkpoint: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    tensors["classifier.weight"] = torch.zeros(2, 20)
    hub.files["model.safetensors"] = save(tensors)
    assert main(["download", REPOSITORY]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"bert-service download: {REPOSITORY}: not a checkpoint that can be loaded"
    assert [line.strip().split(":")[0] for line in lines[1:]] == [
        "missing tensors",
        "unexpected tensors, as of a head for another task, more layers, or another architecture",
    ]
    assert os.listdir(there / "weights") == []


@pytest.mark.usefixtures("cache")
def test_what_is_there_is_never_touched(hub: FakeHub, there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there / "mine").symlink_to("nowhere")
    assert main(["download", REPOSITORY, "--to", "mine"]) == 1
    assert capsys.readouterr().err == (
        "bert-service download: mine exists already: remove it, or name another folder by --to\n"
    )
    assert hub.asked == []


@pytest.mark.parametrize("name", ["./tiny-bert", "a/b/c", ""])
def test_a_name_that_is_none_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["download", name]) == 2
    assert "must be a name on the hub, such as org/name" in capsys.readouterr().err


@pytest.mark.usefixtures("cache")
def test_a_disk_that_is_full_leaves_nothing(
    there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:7])
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    assert main(["download", REPOSITORY]) == 1
    assert capsys.readouterr().err.endswith(": No space left on device\n")
    assert os.listdir(there / "weights") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
@pytest.mark.usefixtures("cache")
def test_an_interrupted_download_leaves_nothing_and_what_had_come_is_not_asked_for_again(
    hub: FakeHub, there: Path, environment: dict[str, str], number: signal.Signals, code: int
) -> None:
    hub.stall.add("model.safetensors")
    command = [sys.executable, "-m", "service", "download", REPOSITORY, "--to", str(there / "target")]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
    try:
        assert hub.stalled.wait(60)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, told) == (code, "")
    assert os.listdir(there) == []
    assert {asked.authorization for asked in hub.asked} == {"Bearer hf_sesame", None}
    hub.stall.clear()
    before = hub.downloaded()
    assert main(["download", REPOSITORY, "--to", "target"]) == 0
    assert files_of(there / "target") == hub.files
    assert hub.downloaded() == sorted([*before, "model.safetensors"])
