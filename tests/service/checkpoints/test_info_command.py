from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.__main__ import main
from tests.fake_hub import NO_REPOSITORY, FakeHub
from tests.service.checkpoints.conftest import REPOSITORY, write_checkpoint


def test_a_folder_in_text_and_in_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(checkpoint)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(checkpoint)
    assert "serves      fill_mask, next_sentence, embed, embed_all, embed_sparse, tokenize" in lines
    assert main(["info", str(checkpoint), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model_id"], report["revision"], report["folder"]) == (str(checkpoint), None, str(checkpoint))
    assert report["serving"]["pooling"] == "cls"
    assert report["weights"]["heads_missing"] == []
    assert report["problems"] == []


def test_a_folder_whose_name_is_not_utf_8_in_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = checkpoint.parent / os.fsdecode(b"n\xff")
    link.symlink_to(checkpoint)
    assert main(["info", str(link), "--json"]) == 1  # safetensors opens no such path
    report = json.loads(capsys.readouterr().out)
    assert "is not valid UTF-8" in report["problems"][0]
    assert report["folder"] == report["model_id"] == f"{checkpoint.parent}/n\\udcff"


def test_a_checkpoint_that_cannot_be_served_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (write_checkpoint(tmp_path / "tiny") / "model.safetensors").write_bytes(b"short")
    assert main(["info", str(tmp_path / "tiny"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert len(report["problems"]) == 1
    assert report["problems"][0].startswith("model.safetensors: is no whole safetensors file")
    assert report["serving"] is None
    assert main(["info", str(tmp_path / "tiny")]) == 1
    assert "problems    1\n  - model.safetensors: is no whole" in capsys.readouterr().out


@pytest.mark.usefixtures("cache")
def test_a_name_on_the_hub(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", REPOSITORY, "--offline"]) == 1
    assert capsys.readouterr().err.startswith(f"bert-service info: {REPOSITORY} is no folder here, and from the hub: ")
    assert main(["info", REPOSITORY, "--revision", "main"]) == 0
    assert capsys.readouterr().out.startswith(f"{REPOSITORY} at {hub.commit}\nmodel ")
    hub.faults["."] = NO_REPOSITORY
    assert main(["info", REPOSITORY, "--offline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["revision"] == hub.commit


@pytest.mark.usefixtures("cache")
def test_a_repository_of_another_kind(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files["config.json"] = b'{"model_type": "llama"}'
    assert main(["info", REPOSITORY]) == 1
    assert "\n  - config.json: model_type: 'llama' is another architecture" in capsys.readouterr().out
    assert main(["info", REPOSITORY, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["model_id"], report["revision"], report["folder"]) == (REPOSITORY, None, None)
    assert len(report["problems"]) == 1
    assert "model.safetensors" not in hub.downloaded()


def test_a_reader_that_has_seen_enough_is_no_fault(checkpoint: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        command = [sys.executable, "-m", "service", "info", str(checkpoint), "--json"]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
