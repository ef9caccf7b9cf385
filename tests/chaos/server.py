"""`bert-service` with a fake engine, short of patience: `python -m tests.chaos.server PASS_SECONDS FLAGS…`.

The answer to a text is a function of the text, which whoever asks can compute too.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import service.app
import service.connection
import service.server
from service.__main__ import main
from service.errors import ServiceError
from service.settings import Settings
from service.tasks import Embed, EmbedResult, Result
from tests.service.fake_engine import FAKE_INFO, FakeEncoded, FakeEngine

UNFINISHED_REQUEST_SECONDS = 2
UNREAD_ANSWER_SECONDS = 2


def vector_of(text: str) -> list[float]:
    """The answer to a text."""
    return [byte / 256 for byte in hashlib.blake2b(text.encode()).digest()]


class ChaosEngine(FakeEngine):
    """A pass takes a while, now more and now less."""

    def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> list[Result | ServiceError]:
        time.sleep(float(sys.argv[1]) * random.expovariate(1))
        results = [
            _with_vector(item, result) for item, result in zip(batch, super().run(batch, threads=threads), strict=True)
        ]
        self.asked.clear()  # or they would look like a leak
        self.passed.clear()
        return results


def _with_vector(item: FakeEncoded, result: Result | ServiceError) -> Result | ServiceError:
    if not isinstance(item.task, Embed) or not isinstance(result, EmbedResult):
        return result
    return replace(result, vector=np.array(vector_of(str(item.task.text)), dtype=np.float32))


def load_engine(settings: Settings, *, worker: int) -> ChaosEngine:
    del settings, worker
    return ChaosEngine(info=replace(FAKE_INFO, model_id="fake"), threads=2)


if __name__ == "__main__":
    vars(service.app)["load_engine"] = load_engine
    vars(service.connection)["UNFINISHED_REQUEST_SECONDS"] = UNFINISHED_REQUEST_SECONDS
    vars(service.server)["UNREAD_ANSWER_SECONDS"] = UNREAD_ANSWER_SECONDS
    sys.exit(main(["serve", *sys.argv[2:]]))
