"""Sequences laid end to end in one row of tokens, without padding.

Axes: B rows and L columns of a padded call, T packed tokens, N sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring sequences of equal length, and of equally many wanted rows: one `[count, length]` block.

    first_sequence, first_token, first_query: where the run begins among sequences, tokens and wanted rows.
    queries: wanted rows of each sequence; equal to `length` where all are wanted.
    """

    first_sequence: int
    first_token: int
    first_query: int
    count: int
    length: int
    queries: int

    @property
    def sequences(self) -> slice:
        """The run among the sequences."""
        return slice(self.first_sequence, self.first_sequence + self.count)

    @property
    def tokens(self) -> slice:
        """The run among the packed tokens."""
        return slice(self.first_token, self.first_token + self.count * self.length)

    @property
    def query_rows(self) -> slice:
        """The run among the wanted rows."""
        return slice(self.first_query, self.first_query + self.count * self.queries)


def runs_of(lengths: Sequence[int], *, queries: Sequence[int] | None = None) -> tuple[Run, ...]:
    """Group neighbouring sequences of equal length (and equally many queries) into runs."""
    queries = lengths if queries is None else queries
    runs: list[Run] = []
    token = query = 0
    begin = 0
    for end in range(1, len(lengths) + 1):
        shape = lengths[begin], queries[begin]
        if end < len(lengths) and (lengths[end], queries[end]) == shape:
            continue
        count = end - begin
        runs.append(Run(begin, token, query, count, *shape))
        token += count * shape[0]
        query += count * shape[1]
        begin = end
    return tuple(runs)


@dataclass(frozen=True, eq=False)
class WantedRows:
    """The tokens whose last hidden state is asked for, ascending.

    rows_R: int64 `[R]`, indices into the packed tokens.
    counts: how many of them each sequence has.
    given_offsets_N1: `offsets_N1` in any integer type, from a caller that has them on the device.
    """

    rows_R: Tensor
    counts: Sequence[int]
    given_offsets_N1: Tensor | None = None

    @cached_property
    def offsets_N1(self) -> Tensor:
        """int32 `[N + 1]`: where each sequence's wanted rows begin and end."""
        if self.given_offsets_N1 is not None:
            return self.given_offsets_N1.int()
        return offsets_of(self.counts, device=self.rows_R.device)


@dataclass(frozen=True, eq=False)
class PackedTokens:
    """N sequences of T tokens in all, on one device.

    ids_T: int64 `[T]`, or None where `embeds_TD` (`[T, D]`) stands for them.
    segments_T, positions_T: int64 `[T]`; positions count within the sequence.
    lengths: tokens of each sequence, on the host, each at least 1. Empty where only the device knows them: then only
        attention over offsets can serve.
    given_offsets_N1: `offsets_N1` in any integer type, from a caller that has them on the device.
    length_bound: no sequence is longer, from a caller that does not give lengths.
    """

    ids_T: Tensor | None
    segments_T: Tensor
    positions_T: Tensor
    lengths: Sequence[int]
    embeds_TD: Tensor | None = None
    given_offsets_N1: Tensor | None = None
    length_bound: int | None = None

    @cached_property
    def offsets_N1(self) -> Tensor:
        """int32 `[N + 1]`: where each sequence begins and ends among the tokens."""
        if self.given_offsets_N1 is not None:
            return self.given_offsets_N1.int()
        return offsets_of(self.lengths, device=self.positions_T.device)

    @cached_property
    def first_rows_N(self) -> Tensor:
        """int64 `[N]`: the row of each sequence's first token."""
        return self.offsets_N1[:-1].long()

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The sequences as blocks of equal length."""
        return runs_of(self.lengths)

    @property
    def longest(self) -> int:
        """Length of the longest sequence, or a bound of it."""
        return max(self.lengths) if self.length_bound is None else self.length_bound


def offsets_of(lengths: Sequence[int], *, device: torch.device) -> Tensor:
    """int32 `[N + 1]`: 0 and the running sums of `lengths`."""
    offsets_N1 = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    torch.cumsum(torch.tensor(lengths, dtype=torch.int32), 0, out=offsets_N1[1:])
    return offsets_N1.to(device, non_blocking=True)


def pack(
    input_ids: Tensor | None,
    *,
    inputs_embeds: Tensor | None,
    token_type_ids: Tensor,
    position_ids: Tensor,
    keep_BL: Tensor,
) -> tuple[PackedTokens, Tensor]:
    """Pack a padded batch.

    Args:
        input_ids: int64 `[B, L]`, or None.
        inputs_embeds: `[B, L, D]`, or None.
        token_type_ids, position_ids: int64 `[B, L]`.
        keep_BL: bool `[B, L]`, the tokens to keep, at least one a row.

    Returns:
        The packed tokens, and int64 `[T]`: their places in the flattened `[B * L]` batch, for `unpack`.
    """
    places_T = keep_BL.flatten().nonzero().squeeze(1)
    return PackedTokens(
        ids_T=None if input_ids is None else input_ids.flatten()[places_T],
        segments_T=token_type_ids.flatten()[places_T],
        positions_T=position_ids.flatten()[places_T],
        lengths=keep_BL.sum(1).tolist(),
        embeds_TD=None if inputs_embeds is None else inputs_embeds.flatten(0, 1)[places_T],
    ), places_T


def unpack(values_T: Tensor, *, places_T: Tensor, shape: tuple[int, int]) -> Tensor:
    """Scatter `[T, …]` back into `[B, L, …]`, zeros at padding. `shape` is `(B, L)`."""
    rows, columns = shape
    padded = values_T.new_zeros(rows * columns, *values_T.shape[1:])
    return padded.index_copy(0, places_T, values_T).reshape(*shape, *values_T.shape[1:])
