"""The processes of a run: one alone, or several under `torchrun`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """rank: of this process, from 0. count: of processes. device: where this one computes."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value's sum over all processes."""
        if self.count == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return [float(value) for value in total.tolist()]

    def wait(self) -> None:
        """Until all have come here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined_ranks(device: str) -> Iterator[Ranks]:
    """This process among those that `torchrun` started; alone without it.

    Args:
        device: `auto`, `cpu` or `cuda`; each process of several has a GPU of its own.

    Raises:
        ValueError: the device is not there.
    """
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise ValueError("device: there is no GPU here that PyTorch can use")
    kind = "cuda" if has_gpu and device != "cpu" else "cpu"
    if not dist.is_torchelastic_launched():
        yield Ranks(rank=0, count=1, device=torch.device(kind))
        return
    # The others wait while the first learns a vocabulary, evaluates or saves, for longer than PyTorch would let them.
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=timedelta(days=1))
    try:
        own = torch.device(kind, dist.get_node_local_rank()) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(own)
        yield Ranks(rank=dist.get_rank(), count=dist.get_world_size(), device=own)
    finally:
        dist.destroy_process_group()
