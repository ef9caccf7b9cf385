from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# An example takes longer where the machine is busy, and the first one makes what all share.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def cuda() -> torch.device:
    """The GPU of a test that is marked `gpu`; asked for where there is none, such a test fails."""
    if not torch.cuda.is_available():
        pytest.fail(f"no CUDA device: this torch is {torch.__version__}", pytrace=False)
    return torch.device("cuda", torch.cuda.current_device())
