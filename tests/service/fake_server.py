"""`bert-service`, but with an engine without a model: `python -m tests.service.fake_server PASS_SECONDS FLAGS…`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import service.app
from service.__main__ import main
from service.errors import ServiceError
from service.settings import Settings
from service.tasks import Result
from tests.service.fake_engine import FAKE_INFO, FakeEncoded, FakeEngine


class SlowEngine(FakeEngine):
    """A pass takes a while."""

    def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> list[Result | ServiceError]:
        time.sleep(float(sys.argv[1]))
        return super().run(batch, threads=threads)


def load_engine(settings: Settings, *, worker: int) -> SlowEngine:
    info = replace(FAKE_INFO, model_id=f"fake {settings.model_name}", revision=f"{worker} in {os.getpid()}")
    return SlowEngine(info=info, budget=13)


if __name__ in ("__main__", "__mp_main__"):  # the latter in the processes of workers
    vars(service.app)["load_engine"] = load_engine
if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[2:]]))
