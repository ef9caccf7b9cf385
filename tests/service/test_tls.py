"""The files for TLS: what is wrong with them is told before anything is done, and what is right is served."""

from __future__ import annotations

import signal
import ssl
from pathlib import Path

import httpx
import pytest

from service.settings import Settings, SettingsError
from service.tls import check_tls
from tests.service.certificates import make_certificate
from tests.service.fake_engine import PATIENCE_SECONDS
from tests.service.server_process import server

PASSWORD = "sesame"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates `plain`, `other` and `locked`, a file with certificate and key, and one with neither."""
    made = tmp_path_factory.mktemp("certificates")
    for name, password in (("plain", None), ("other", None), ("locked", PASSWORD)):
        make_certificate(made, name=name, password=password)
    (made / "both.pem").write_text((made / "plain.crt").read_text() + (made / "plain.key").read_text())
    (made / "text").write_text("not PEM")
    return made


def check(folder: Path, certificate: str, key: str | None, password: str | None = None) -> None:
    key_file = None if key is None else str(folder / key)
    values = {"ssl_certfile": str(folder / certificate), "ssl_keyfile": key_file, "ssl_keyfile_password": password}
    check_tls(Settings.model_validate(values))


def test_without_a_certificate_there_is_nothing_to_check() -> None:
    check_tls(Settings())


@pytest.mark.parametrize(
    ("certificate", "key", "password"),
    [("plain.crt", "plain.key", None), ("both.pem", None, None), ("locked.crt", "locked.key", f"{PASSWORD}\n")],
)
def test_good_files(certificate: str, key: str | None, password: str | None, folder: Path) -> None:
    check(folder, certificate, key, password)


NO_KEY = "no private key in it can be read; it must be PEM, and SSL_KEYFILE_PASSWORD its password if it is encrypted"


@pytest.mark.parametrize(
    ("certificate", "key", "password", "setting", "at_fault", "fault"),
    [
        ("no", "plain.key", None, "certfile", "no", "No such file or directory"),
        ("plain.crt", "no", None, "keyfile", "no", "No such file or directory"),
        ("text", "plain.key", None, "certfile", "text", "no certificate in it can be read; it must be PEM"),
        ("plain.crt", "text", None, "keyfile", "text", NO_KEY),
        ("plain.crt", None, None, "certfile", "plain.crt", NO_KEY),
        ("plain.crt", "other.key", None, "keyfile", "other.key", "not the key of the certificate in '{0}/plain.crt'"),
        ("locked.crt", "locked.key", None, "keyfile", "locked.key", NO_KEY),
        ("locked.crt", "locked.key", "wrong-one", "keyfile", "locked.key", NO_KEY),
    ],
)
def test_bad_files_are_told_in_one_line(
    certificate: str, key: str | None, password: str | None, setting: str, at_fault: str, fault: str, folder: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        check(folder, certificate, key, password)
    shown = f"--ssl-{setting} (SSL_{setting.upper()}) is '{folder}/{at_fault}': {fault.format(folder)}"
    assert str(caught.value) == shown


def test_a_server_speaks_tls(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = str(folder / "locked.crt"), str(folder / "locked.key")
    monkeypatch.setenv("SSL_KEYFILE_PASSWORD", PASSWORD)
    trusting = ssl.create_default_context(cafile=certificate)
    with (
        server(tmp_path / "log", "--ssl-certfile", certificate, "--ssl-keyfile", key) as (process, url),
        httpx.Client(verify=trusting, base_url=url) as client,
    ):
        assert url.startswith("https://127.0.0.1:")
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert PASSWORD not in (tmp_path / "log").read_text()
