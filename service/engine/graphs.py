"""The trunk as CUDA graphs, for batches so small that launching kernels takes longer than the kernels.

A graph has fixed shapes: those of a bucket, up to which `collate` fills a batch by a sequence of its own. Offsets keep
attention within each sequence, and no other layer looks past a row, so the filler changes no answer.

Axes: T tokens of a bucket, R wanted rows, N sequences, D hidden, X numbers of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from bert_core import BertModel
from bert_core.heads import reduce_segments
from bert_core.precision import MEASURED_BOUNDS
from service.engine.collate import Batch, Bucket, collate, unpack_row
from service.engine.encoding import ALL_ROWS, EncodedTask, Sequence
from service.tasks import Embed

logger = logging.getLogger(__name__)

BUCKET_TOKENS = (16, 32, 64, 128, 256, 512, 1024)

# Batches of shorter texts than this take the first larger bucket with room for so many.
TOKENS_PER_SEQUENCE = 8

# Libraries make their workspaces in the first calls, which cannot be recorded.
CALLS_BEFORE_RECORDING = 3

Work: TypeAlias = Callable[[], Tensor]
Recorder: TypeAlias = Callable[[Work], Work]
"""Makes of work on fixed tensors a replay, which does the same on what these tensors hold by then."""


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """row_X: what `replay` reads, as `unpack_row` takes it apart. replay: gives all last hidden states `[T, D]`."""

    row_X: Tensor
    replay: Work


class TrunkGraphs:
    """Graphs of a model's trunk; none until they are recorded. For one thread at a time."""

    def __init__(self, bert: BertModel) -> None:
        self._bert = bert
        self._device = bert.embeddings.norm.weight.device
        self._graphs: dict[Bucket, Graph] = {}

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The shapes that have a graph, smallest first."""
        return tuple(sorted(self._graphs, key=lambda bucket: bucket.tokens))

    def encode(self, batch: Batch) -> Tensor:
        """As `BertModel.encode`, `[R, D]`, for a batch that fills a bucket; good until the next call."""
        assert batch.bucket is not None
        hidden_TD = _replayed(self._graphs[batch.bucket], batch)
        return hidden_TD[: batch.tokens] if batch.wanted is None else hidden_TD.index_select(0, batch.wanted.rows_R)

    @torch.inference_mode()
    def record(self, recorder: Recorder) -> None:
        """Make the graphs, where attention is over offsets: the other kernels are chosen by lengths on the host.

        A bucket goes without a graph if recording fails or the graph strays from the plain pass by more than the
        dtype's bound; the log says which and why.
        """
        if not all(one.can_take_varlen(self._bert.dtype, device=self._device) for one in self._bert.attentions()):
            logger.info("no CUDA graphs: attention over offsets has no kernel for this model here")
            return
        # The largest first: the others find room in the memory that its kernels have left.
        for tokens in sorted(BUCKET_TOKENS, reverse=True):
            bucket = Bucket(tokens, tokens // TOKENS_PER_SEQUENCE)
            try:
                self._graphs[bucket] = self._verified(bucket, recorder)
            except Exception as error:
                logger.warning("no CUDA graph for batches of up to %d tokens: %s", tokens, error)

    def _verified(self, bucket: Bucket, recorder: Recorder) -> Graph:
        probes = _probes(bucket, bert=self._bert)
        row_X = collate(probes[0], device=self._device, buckets=[bucket]).row_X
        graph = Graph(row_X, recorder(lambda: self._bert.encode(unpack_row(row_X, bucket=bucket))))
        least = MEASURED_BOUNDS[self._bert.dtype].embedding_cosine
        for probe in probes:
            plain = collate(probe, device=self._device)
            filled = collate(probe, device=self._device, buckets=[bucket])
            right_ND = _means(self._bert.encode(plain.packed), plain)
            ours_ND = _means(_replayed(graph, filled), filled)
            cosine = float(torch.cosine_similarity(ours_ND, right_ND, dim=1).min())
            if not cosine >= least:
                raise ValueError(f"its vectors have a cosine of {cosine:.6f} to those of the plain pass, under {least}")
        return graph


def _replayed(graph: Graph, batch: Batch) -> Tensor:
    graph.row_X.copy_(batch.row_X)
    return graph.replay()


def _means(hidden_TD: Tensor, batch: Batch) -> Tensor:
    rows = batch.heads["mean"]
    return reduce_segments(hidden_TD.index_select(0, rows.rows_X).float(), offsets_N1=rows.offsets_N1, how="mean")


def _probes(bucket: Bucket, *, bert: BertModel) -> list[list[EncodedTask]]:
    """Two batches of random ids for a bucket: one long sequence, and short ones beside a filler."""
    random = np.random.default_rng(bucket.tokens)
    long = min(bucket.tokens, bert.config.max_position_embeddings)
    short = [int(length) for length in random.integers(1, 1 + min(12, long // 2), size=(bucket.sequences - 1) // 2 + 1)]
    return [[_probe(length, random, bert.config.vocab_size) for length in lengths] for lengths in ([long], short)]


def _probe(length: int, random: np.random.Generator, vocab_size: int) -> EncodedTask:
    ids = random.integers(vocab_size, size=length).tolist()
    sequence = Sequence(ids, [0] * length, ALL_ROWS)
    return EncodedTask(task=Embed(text=tuple(ids)), sequences=(sequence,), pooling="mean")


class CudaRecorder:
    """Records work as CUDA graphs, which share the memory of what they compute in between."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Memory is shared between graphs of one pool that were recorded on one stream.
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Record; the replay always gives the same tensor.

        Raises:
            RuntimeError: the work cannot be recorded, as where it waits for the device.
        """
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        # The stream is entered here too: where ending a record fails, `torch.cuda.graph` does not leave it.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._stream.wait_stream(before)
            for _ in range(CALLS_BEFORE_RECORDING):
                work()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                result = work()
        before.wait_stream(self._stream)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
