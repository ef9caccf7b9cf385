from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import main
from service.settings import Settings
from service.start_checks import check_start


def test_nothing_is_needed_by_default() -> None:
    check_start(Settings())


def test_all_faults_are_told_before_the_service_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    assert main(["serve", "--api-key-file", str(keys), "--ssl-certfile", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == (
        f"bert-service: --api-key-file (API_KEY_FILE) is '{keys}': line 1: must be name:key, with a colon\n"
        f"--api-key-file (API_KEY_FILE) is '{keys}': line 2: must be name:key, with a colon\n"
        f"--ssl-certfile (SSL_CERTFILE) is '{tmp_path}/no': No such file or directory\n"
    )
