"""Every way of a pass between host and device, seen without a GPU.

The model lives on the meta device, which holds no values: whatever looks at one raises, as it would wait on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")


class TransferCounter(TorchDispatchMode):
    """Names the operations that bring something to the meta device or from there, for which it gives zeros.

    A tensor on the device that no operation made, and that is not one of `resident`, was made of the host's values.
    """

    def __init__(self, resident: Iterable[Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self._known = {id(tensor): tensor for tensor in resident}
        self.to_device: list[str] = []
        self.to_host: list[str] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run it, and look where its tensors are."""
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_device = [tensor for tensor in given if tensor.device == META]
        if any(id(tensor) not in self._known for tensor in on_device):
            self.to_device.append(f"values given to {func}")
        if on_device and kwargs.get("device") == torch.device("cpu"):
            self.to_host.append(str(func))
            return torch.zeros(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        found = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor) and leaf.device == META]
        if made and len(on_device) < len(given):
            self.to_device.append(str(func))
        self._known |= {id(tensor): tensor for tensor in (*on_device, *made)}
        return found
