"""Twenty requests, an idle connection and a client that never reads, for a service that is stopped meanwhile.

Prints `queued` once requests wait for a pass: then is the time to stop it. Exits non-zero unless each request is
answered in full, with 200 or 503, and the idle connection is closed and not reset. Stands alone, on the standard
library, for it runs inside the image.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

PLACE = ("127.0.0.1", 8000)
TIMEOUT_SECONDS = 60
REQUESTS = 20
LONG_TEXT = "the quick brown fox jumps over the lazy dog " * 50


def embed(texts: list[str]) -> int:
    """The status of an answer that came whole."""
    connection = HTTPConnection(*PLACE, timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/embed", json.dumps({"inputs": texts}), {"content-type": "application/json"})
    response = connection.getresponse()
    json.loads(response.read())
    return response.status


def get(path: str) -> tuple[HTTPConnection, str]:
    connection = HTTPConnection(*PLACE, timeout=TIMEOUT_SECONDS)
    connection.request("GET", path)
    return connection, connection.getresponse().read().decode()


def never_read() -> socket.socket:
    """A client whose answer, of megabytes, is ready and stays with the service."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(PLACE)
    body = json.dumps({"inputs": [LONG_TEXT] * 8}).encode()
    head = f"POST /embed_all HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    client.sendall(head.encode() + b"\r\n\r\n" + body)
    client.recv(1, socket.MSG_PEEK)
    return client


def main() -> None:
    idle, _ = get("/health/live")
    deaf = never_read()
    with ThreadPoolExecutor(REQUESTS) as threads:
        answers = [threads.submit(embed, [LONG_TEXT] * 8) for _ in range(REQUESTS)]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not re.search(r"^te_queue_size [1-9]", get("/metrics")[1], flags=re.MULTILINE):
            if time.monotonic() > deadline:
                raise SystemExit("nothing has waited in the queue")
        print("queued", flush=True)
        statuses = Counter(answer.result() for answer in answers)
    print(f"requests by status: {dict(statuses)}")
    if not statuses.keys() <= {200, 503}:
        raise SystemExit("an answer is neither 200 nor 503")
    if idle.sock.recv(1):
        raise SystemExit("the idle connection has got something that it did not ask for")
    deaf.close()


if __name__ == "__main__":
    main()
