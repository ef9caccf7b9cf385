"""How large a pass may be after the device's memory has run out."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from service.engine.encoding import EncodedTask

# After each pass that fits: from half of what failed back to it within a few dozen passes.
GROWTH = 1.02


class PassLimit:
    """No limit until memory runs out; then half of what did not fit, growing again with every pass that does.

    For one thread at a time: only on a CPU do several run passes, and there PyTorch raises no `OutOfMemoryError`.
    """

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._did_not_fit = 0

    @property
    def tokens(self) -> int | None:
        """The most tokens of a pass, or None."""
        return None if self._tokens is None else int(self._tokens)

    def memory_ran_out(self, *, tokens: int) -> None:
        """A pass of so many tokens did not fit."""
        self._did_not_fit = tokens
        self._tokens = max(tokens / 2, 1.0)

    def pass_fitted(self) -> None:
        """Trust the device with a little more; at last, as at first, with anything."""
        if self._tokens is not None:
            self._tokens *= GROWTH
            if self._tokens >= self._did_not_fit:
                self._tokens = None

    def parts(self, batch: SequenceOf[EncodedTask]) -> list[SequenceOf[EncodedTask]]:
        """The batch in passes within the limit, in order; a task over it alone has a pass of its own."""
        if self._tokens is None:
            return [batch]
        parts: list[list[EncodedTask]] = []
        room = 0.0
        for task in batch:
            if task.compute_tokens > room or not parts:
                parts.append([])
                room = self._tokens
            parts[-1].append(task)
            room -= task.compute_tokens
        return list(parts)
