from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import main
from service.settings import Settings, SettingsError
from service.start_checks import check_start


def test_nothing_is_needed_by_default() -> None:
    check_start(Settings())


def test_tracing_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(otlp_endpoint="http://localhost:4318")
    check_start(settings)
    monkeypatch.setattr("service.start_checks.find_spec", lambda _: None)
    with pytest.raises(SettingsError) as caught:
        check_start(settings)
    assert str(caught.value) == (
        "--otlp-endpoint (OTLP_ENDPOINT) is 'http://localhost:4318': tracing needs packages that are not installed; "
        "install them with: pip install 'bert-service[otel]'"
    )


def test_a_package_whose_parent_is_missing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr("service.start_checks.find_spec", fail)
    with pytest.raises(SettingsError, match="not installed"):
        check_start(Settings(otlp_endpoint="http://localhost:4318"))


def test_all_faults_are_told_before_the_service_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    assert main(["serve", "--api-key-file", str(keys), "--ssl-certfile", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == (
        f"bert-service: --api-key-file (API_KEY_FILE) is '{keys}': line 1: must be name:key, with a colon\n"
        f"--api-key-file (API_KEY_FILE) is '{keys}': line 2: must be name:key, with a colon\n"
        f"--ssl-certfile (SSL_CERTFILE) is '{tmp_path}/no': No such file or directory\n"
    )
