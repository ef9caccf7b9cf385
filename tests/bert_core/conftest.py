"""Settings of the model's tests."""

from __future__ import annotations

import torch

# Tiny matrices gain nothing from threads, and threads that wait for each other on a busy machine take minutes.
torch.set_num_threads(1)
