"""An engine without a model behind a real port, for answers that a working model does not give."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import httpx

from service.app import create_app
from service.server import Server, address, listen
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import wait_until


@contextlib.contextmanager
def fake_server(engine: FakeEngine, **settings: object) -> Iterator[str]:
    """The URL of a service in a thread of this process, ready."""
    values = Settings.model_validate({"host": "127.0.0.1", "port": 0, "model_id": "fake", **settings})
    app = create_app(values, engine)
    server = Server(app, lifecycle=app.state.lifecycle, settings=values)
    [listener] = listen(values)
    with listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = address(listener)
            wait_until(lambda: httpx.get(f"{url}/health/ready").status_code == 200)
            yield url
        finally:
            server.should_exit = True
            thread.join()
