"""A server on loopback that says what a test wants, byte by byte, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

COSTS = {
    "x-compute-tokens": "7",
    "x-total-time": "4.5",
    "x-tokenization-time": "0.5",
    "x-queue-time": "1.5",
    "x-inference-time": "2.5",
}
INFO = b'{"model_id":"tiny","device":"cpu","dtype":"float32","version":"9","max_input_length":41,"mask_token":"<mask>"}'


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class RawServer:
    """answer: what goes back for a request, whole; empty closes the connection."""

    answer: Callable[[Asked], bytes]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


def http_answer(body: bytes, *, status: str = "200 OK", headers: dict[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def good_answer(asked: Asked) -> bytes:
    """Facts for `/info`, costs for everything else."""
    return http_answer(INFO) if asked.line.startswith("GET /info ") else http_answer(b"[]", headers=COSTS)


@contextmanager
def raw_server(answer: Callable[[Asked], bytes] = good_answer) -> Iterator[RawServer]:
    """Serve on a free port, a thread for each connection; at the end clients must have closed theirs."""
    server = RawServer(answer)

    class Handler(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            server.connections += 1
            with contextlib.suppress(ConnectionError):
                while line := self._line():
                    server.asked.append(asked := self._asked(line))
                    if not (content := server.answer(asked)):
                        return
                    self.wfile.write(content)

        def _asked(self, line: str) -> Asked:
            headers = dict(header.split(": ", 1) for header in iter(self._line, ""))
            return Asked(line, headers, self.rfile.read(int(headers.get("content-length", "0"))))

        def _line(self) -> str:
            return self.rfile.readline().decode().strip()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join(10)
