from __future__ import annotations

from pathlib import Path

from tests.chaos.clients import CLIENTS
from tests.chaos.run import run


def test_every_accepted_request_gets_its_answer_whatever_others_do(tmp_path: Path) -> None:
    chaos, footprints = run(tmp_path, seconds=12, seed=1)
    assert not chaos.faults
    assert footprints["afterwards"].threads <= footprints["early"].threads
    # Everybody was there, and the service was overloaded and refused for all reasons.
    asked = {name.partition(":")[0] for name in chaos.counts}
    assert asked >= {client.__name__ for client, _ in CLIENTS} - {"leaves", "never_reads", "looks_after"}
    assert {name.partition(": ")[2] for name in chaos.counts} >= {"200", "400", "413", "422", "429", "500"}
