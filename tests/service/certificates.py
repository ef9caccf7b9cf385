"""Self-signed certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, *, name: str, password: str | None = None) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its private key, both in PEM."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    encryption = ["-noenc"] if password is None else ["-passout", f"pass:{password}"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate), *encryption]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
