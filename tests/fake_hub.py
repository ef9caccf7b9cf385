"""A Hugging Face hub on loopback: as much of its protocol as downloads speak, and the ways in which it fails.

What the client asks: `GET /api/models/NAME/revision/REVISION` for the commit, `GET /api/models/NAME/tree/COMMIT` for
the files, `HEAD` and `GET /NAME/resolve/COMMIT/FILE` for one. Weights are redirected to another host, as the hub does.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

WEIGHTS = (".safetensors", ".bin", ".h5", ".onnx", ".msgpack", ".ot")


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer in place of the right one."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


NO_REPOSITORY = Fault(404, {"X-Error-Code": "RepoNotFound"})
GATED = Fault(403, {"X-Error-Code": "GatedRepo"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the hub received; `path` is without its query."""

    method: str
    path: str
    authorization: str | None
    range: str | None


class FakeHub(http.server.ThreadingHTTPServer):
    """One repository with one commit on `main`.

    faults: pattern of "METHOD path" to what is answered instead.
    cut: names of files whose whole `GET` ends after half of the body; one with a range is answered in full.
    stall: names of files whose `GET` gives half of the body, and the rest once `release` is set.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, name: str, *, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.files = dict(files)
        self.commit = hashlib.sha1(repr(sorted(files)).encode()).hexdigest()
        self.faults: dict[str, Fault] = {}
        self.cut: set[str] = set()
        self.stall: set[str] = set()
        self.release = threading.Event()
        self.stalled = threading.Event()
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def downloaded(self) -> list[str]:
        """The names of the files whose contents were asked for, a name a time."""
        gets = (asked.path for asked in self.asked if asked.method == "GET")
        places = (re.fullmatch(r"/cdn/(.+)|.*/resolve/[^/]+/(.+)", path) for path in gets)
        return sorted(found[1] or found[2] for found in places if found)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed are what some tests are about."""


@contextlib.contextmanager
def fake_hub(name: str, *, files: Mapping[str, bytes]) -> Iterator[FakeHub]:
    """A hub that answers until the end of the context."""
    with FakeHub(name, files=files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.release.set()
            hub.shutdown()
            thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    """The contents of a folder's files by their relative names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test looks at what was asked."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.asked.append(Asked(self.command, path, self.headers["Authorization"], self.headers["Range"]))
        for pattern, fault in hub.faults.items():
            if re.search(pattern, f"{self.command} {path}"):
                return self._send(fault.status, dict(fault.headers), b"")
        if path.startswith("/cdn/"):
            return self._send_file(path.removeprefix("/cdn/"), {})
        if found := re.fullmatch(rf"/api/models/{hub.name}/(revision|tree)/(.+)", path):
            return self._describe(found[1], found[2])
        if found := re.fullmatch(rf"/{hub.name}/resolve/{hub.commit}/(.+)", path):
            return self._resolve(found[1])
        return self._send(404, dict(NO_REPOSITORY.headers), b"")

    def _describe(self, kind: str, revision: str) -> None:
        hub = self.server
        if revision not in ("main", hub.commit):
            return self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
        tree = [
            {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
            for name, content in hub.files.items()
        ]
        info = {"id": hub.name, "modelId": hub.name, "sha": hub.commit, "private": False, "tags": [], "downloads": 0}
        body = json.dumps(info if kind == "revision" else tree).encode()
        return self._send(200, {"Content-Type": "application/json"}, body)

    def _resolve(self, name: str) -> None:
        hub = self.server
        if name not in hub.files:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": hub.commit}, b"")
        content = hub.files[name]
        headers = {"X-Repo-Commit": hub.commit, "ETag": f'"{_etag(content)}"'}
        if not name.endswith(WEIGHTS):
            return self._send_file(name, headers)
        place = f"http://localhost:{hub.server_port}/cdn/{name}"
        linked = {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content)), "Location": place}
        return self._send(302, headers | linked, b"")

    def _send_file(self, name: str, headers: dict[str, str]) -> None:
        hub, content = self.server, self.server.files[name]
        if wanted := self.headers["Range"]:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            part = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            return self._send(206, headers | part, content[start:])
        if self.command == "GET" and name in hub.cut | hub.stall:
            return self._send_half(content, headers, cut=name in hub.cut)
        return self._send(200, headers, content)

    def _send_half(self, content: bytes, headers: dict[str, str], *, cut: bool) -> None:
        hub, half = self.server, len(content) // 2
        self._begin(200, headers, length=len(content))
        self.wfile.write(content[:half])
        if cut:
            self.close_connection = True
            return
        hub.stalled.set()
        hub.release.wait(60)
        self.wfile.write(content[half:])

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._begin(status, headers, length=len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: int, headers: dict[str, str], *, length: int) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
