"""Servers as their own processes: ours and the peers'."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.checkpoint import full_length_checkpoint
from tests.benchmarks.environments import OURS, interpreter, variables
from tests.benchmarks.texts import ROOT

START_SECONDS = 120


class ServerFailed(Exception):
    """A server that did not come up; the message is the end of its log."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """How to start a server.

    command: after the interpreter; `{port}` stands for the port.
    ready: a path that answers 200 once requests can be served.
    """

    name: str
    environment: str
    command: tuple[str, ...]
    ready: str = "/health"
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers, and the seconds from its start to its first 200 on the ready path."""

    process: subprocess.Popen[bytes]
    url: str
    ready_seconds: float

    def post(self, path: str, body: Any) -> Any:
        """The parsed answer to one request."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def get(self, path: str) -> Any:
        """The parsed answer to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.loads(answer.read())

    def resident_bytes(self, field_name: str = "VmRSS") -> int:
        """Memory of the process; `VmHWM` for the most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(dict(line.split(":", 1) for line in status.splitlines())[field_name].split()[0]) * 1024


def our_server(dtype: str, *, workers: int = 1, checkpoint: Path | None = None) -> Server:
    """`python -m service serve`, the shipped checkpoint by default; "2 workers" in its name where they are several."""
    command = (
        "-m",
        "service",
        "serve",
        "--model-id",
        str(checkpoint or full_length_checkpoint()),
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--dtype",
        dtype,
        "--workers",
        str(workers),
    )
    name = f"bert-service {dtype}" + (f", {workers} workers" if workers > 1 else "")
    return Server(name=name, environment=OURS, command=command, ready="/health/ready")


def infinity_server(dtype: str) -> Server:
    """infinity with its torch engine, otherwise as it comes."""
    command = ("-m", "infinity_emb.cli", "v2", "--model-id", str(full_length_checkpoint()), "--engine", "torch")
    flags = ("--device", "cpu", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "error")
    return Server(name=f"infinity {dtype}", environment="infinity", command=(*command, *flags, "--dtype", dtype))


def fastapi_server(title: str, *, module: str, environment: str) -> Server:
    """One of `tests.benchmarks.servers` under uvicorn."""
    command = ("-m", "uvicorn", f"tests.benchmarks.servers.{module}:app", "--host", "127.0.0.1", "--port", "{port}")
    return Server(name=title, environment=environment, command=(*command, "--log-level", "warning"))


@contextlib.contextmanager
def running(server: Server, *, threads: int, log: Path) -> Iterator[Running]:
    """Start a server, wait until it is ready, and stop it at the end.

    Raises:
        EnvironmentMissing: it has no environment.
        ServerFailed: it ended, or was not ready in time.
    """
    port = _free_port()
    command = [part.format(port=port) for part in server.command]
    begin = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(interpreter(server.environment)), *command],
            cwd=ROOT,
            env={**variables(threads=threads), **server.variables},
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url + server.ready, log=log)
        yield Running(process, url, time.perf_counter() - begin)
    finally:
        _stop(process)


def import_torch(*, threads: int) -> tuple[float, int]:
    """Seconds and resident bytes of a Python that only imports torch."""
    code = "import torch, sys; sys.stdout.write(open('/proc/self/status').read())"
    begin = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", code], env=variables(threads=threads), capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - begin
    status = dict(line.split(":", 1) for line in result.stdout.splitlines())
    return seconds, int(status["VmRSS"].split()[0]) * 1024


def _wait(process: subprocess.Popen[bytes], address: str, *, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(address, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.02)
    raise ServerFailed(_last_words(log.read_text(encoding="utf-8", errors="replace").splitlines()))


def _last_words(lines: Sequence[str]) -> str:
    return " | ".join(line.strip() for line in lines[-3:]) or "no output"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
