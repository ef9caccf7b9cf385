"""The engine: a checkpoint that encodes tasks and runs batches of them, every kind in one pass.

Axes: R wanted rows, X rows of one kind of task, N sequences, D hidden, U ids of the vocabulary that stand for nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as SequenceOf
from os import PathLike
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from bert_core import BertForPreTraining, BertTokenizer
from bert_core.heads import reduce_segments
from service.engine.collate import Batch, collate
from service.engine.device import available_cpus, choose_device, choose_dtype
from service.engine.encoding import EncodedTask
from service.engine.fill_mask import MaskScores, fill_masks, most_candidates, score_masks
from service.engine.graphs import CudaRecorder, TrunkGraphs
from service.engine.loading import SHORTEST_SEQUENCE, load_parts, model_info
from service.engine.memory import PassLimit
from service.engine.results import embeddings, next_sentences, token_vectors
from service.engine.sentence_files import SentenceFiles
from service.engine.sparse import sparse_embeddings, vocabulary_weights
from service.engine.target_places import TargetPlaces
from service.engine.task_encoder import TaskEncoder
from service.engine.transfer import to_host
from service.errors import BackendFailure, ServiceError, Unhealthy
from service.tasks import Embed, EmbedSparse, FillMask, NextSentence, Pooling, Result, Task

logger = logging.getLogger(__name__)

CUDA_BATCH_TOKENS = 16_384

# A pass on a CPU shall not hold up what arrives meanwhile for longer than this.
CPU_PASS_SECONDS = 0.15

# But a start on a busy machine, where every pass looks slow, must not cut batches to crumbs for good.
CPU_LEAST_BATCH_TOKENS = 1_024

WARM_UP_TOKENS = 512
WARM_UP_PASSES = 5


class Engine:
    """A loaded checkpoint. `encode` and `run` may be called from several threads at once.

    Args:
        model: in eval mode, on its device and in its dtype; from here on it is for inference alone.
        tokenizer: of the same checkpoint.
        sentence_files: what the checkpoint's sentence-transformers files say.
        model_id: name to report.
        revision: revision to report.
        pooling: default pooling of embeddings; None takes the checkpoint's.
        threads: of a CPU, shared by the passes that run at once; on other devices one pass runs at a time.
    """

    def __init__(
        self,
        model: BertForPreTraining,
        *,
        tokenizer: BertTokenizer,
        sentence_files: SentenceFiles,
        model_id: str,
        revision: str | None = None,
        pooling: Pooling | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._device = next(model.parameters()).device
        self.threads = (threads or available_cpus()) if self._device.type == "cpu" else 1
        self.info = model_info(
            model,
            tokenizer=tokenizer,
            sentence_files=sentence_files,
            model_id=model_id,
            revision=revision,
            pooling=pooling,
        )
        if self._device.type == "cpu":
            logger.info("CPU threads: %d, attention: %s", self.threads, self.info.attention)
        model.prepack()
        self._graphs = TrunkGraphs(model.bert)
        self._limit = PassLimit()
        self._unused_ids_U = torch.tensor(tokenizer.unused_ids, dtype=torch.long, device=self._device)
        self._encoder = TaskEncoder(
            tokenizer, config=model.config, heads=model.heads, info=self.info, files=sentence_files
        )

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        *,
        device: str = "auto",
        dtype: str = "auto",
        model_id: str | None = None,
        revision: str | None = None,
        pooling: Pooling | None = None,
        threads: int | None = None,
        worker: int = 0,
    ) -> Engine:
        """Load a checkpoint folder; `threads` are as many as this process has CPUs, if not given.

        Args:
            worker: see `choose_device`.

        Raises:
            DeviceError: the device or dtype cannot be had.
            CheckpointError, TokenizerError: the folder cannot be served; names everything that is wrong.
        """
        place = choose_device(device, worker=worker)
        precision = choose_dtype(dtype, device=place)
        model, tokenizer, sentence_files = load_parts(Path(folder), device=place, dtype=precision)
        return cls(
            model,
            tokenizer=tokenizer,
            sentence_files=sentence_files,
            model_id=model_id or str(folder),
            revision=revision,
            pooling=pooling,
            threads=threads,
        )

    def encode(self, task: Task) -> EncodedTask:
        """Turn a task into ids; see `TaskEncoder.encode`."""
        return self._encoder.encode(task)

    def run(self, batch: SequenceOf[EncodedTask], *, threads: int | None = None) -> list[Result | ServiceError]:
        """Answer a batch: one pass through the trunk for all tasks, with so many CPU threads, or with all.

        If the pass raises, the batch is halved and tried again until the task at fault is alone; it alone gets a
        `BackendFailure`. After memory has run out, passes are smaller for a while.

        Raises:
            Unhealthy: the device is beyond recovery; only a new process can use it again.
        """
        threads = threads or self.threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)  # of this thread alone
        return [result for part in self._limit.parts(batch) for result in self._isolated(part)]

    def _isolated(self, batch: SequenceOf[EncodedTask]) -> list[Result | ServiceError]:
        try:
            with torch.inference_mode():
                results = self._pass(batch)
        except torch.OutOfMemoryError as error:
            tokens = sum(task.compute_tokens for task in batch)
            logger.warning("memory ran out in a pass over %d tasks, %d tokens: %s", len(batch), tokens, error)
            self._limit.memory_ran_out(tokens=tokens)
        except Exception:
            logger.exception("a pass over %d tasks failed", len(batch))
            self._require_working_device()
        else:
            self._limit.pass_fitted()
            return results
        # Outside of the handlers, whose exceptions keep the tensors of the pass alive.
        if len(batch) == 1:
            return [BackendFailure("the model failed on this item")]
        half = len(batch) // 2
        return [*self._isolated(batch[:half]), *self._isolated(batch[half:])]

    def _require_working_device(self) -> None:
        """Raises Unhealthy if the device fails at everything from now on, as CUDA does after a failed assertion."""
        if self._device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            raise Unhealthy("the device has failed and the service must be restarted") from error

    def _pass(self, tasks: SequenceOf[EncodedTask]) -> list[Result | ServiceError]:
        """Every head's work is handed to the device before the host waits, once, for all that they give."""
        places = TargetPlaces(tasks)
        extra = [places.rows_E, places.ids_E]
        batch = collate(tasks, device=self._device, buckets=self._graphs.buckets, extra=extra)
        hidden_RD = self._trunk(batch)
        members = {kind: [tasks[number] for number in rows.members] for kind, rows in batch.heads.items()}
        outputs = [self._head(kind, members[kind], hidden_RD=hidden_RD, batch=batch, places=places) for kind in members]
        arrays = iter(to_host([tensor for output in outputs for tensor in output]))
        results: dict[int, Result | ServiceError] = {}
        for (kind, rows), output in zip(batch.heads.items(), outputs, strict=True):
            found = self._results(kind, members[kind], arrays=[next(arrays) for _ in output], places=places)
            results.update(zip(rows.members, found, strict=True))
        return [results[number] for number in range(len(tasks))]

    def _trunk(self, batch: Batch) -> Tensor:
        """The one pass through the encoder, `[R, D]`."""
        if batch.bucket is not None:
            return self._graphs.encode(batch)
        return self._model.bert.encode(batch.packed, wanted=batch.wanted)

    def _head(
        self, kind: str, tasks: SequenceOf[EncodedTask], *, hidden_RD: Tensor, batch: Batch, places: TargetPlaces
    ) -> tuple[Tensor, ...]:
        """What a head gives for its tasks, on the device: float32, ids int32."""
        rows = batch.heads[kind]
        rows_XD = hidden_RD.index_select(0, rows.rows_X)
        if kind == "fill_mask":
            assert self._model.mlm is not None
            rows_E, ids_E = batch.extra
            return score_masks(
                rows_XD,
                head=self._model.mlm,
                vocab_size=self._tokenizer.vocab_size,
                unused_ids_U=self._unused_ids_U,
                top_k=most_candidates(tasks, tokenizer=self._tokenizer),
                target_rows_E=rows_E,
                target_ids_E=ids_E,
                places=places,
            )
        if kind == "embed_sparse":
            assert self._model.mlm is not None
            weights_NV = vocabulary_weights(
                rows_XD,
                offsets_N1=rows.offsets_N1,
                head=self._model.mlm,
                vocab_size=self._tokenizer.vocab_size,
                unused_ids_U=self._unused_ids_U,
            )
            return (weights_NV,)
        if kind in ("mean", "max"):
            return (reduce_segments(rows_XD, offsets_N1=rows.offsets_N1, how=kind).float(),)
        if kind in ("cls", "embed_all"):
            return (rows_XD.float(),)
        pooler = self._model.bert.pooler
        assert pooler is not None
        averaged = pooler.averages
        pooled_ND = pooler(reduce_segments(rows_XD, offsets_N1=rows.offsets_N1, how="mean") if averaged else rows_XD)
        if kind == "pooler":
            return (pooled_ND.float(),)
        assert self._model.nsp is not None
        logits_N2 = self._model.nsp(pooled_ND).float()
        return (torch.stack((logits_N2, logits_N2.softmax(1)), 1),)

    def _results(
        self, kind: str, tasks: SequenceOf[EncodedTask], *, arrays: SequenceOf[npt.NDArray[Any]], places: TargetPlaces
    ) -> SequenceOf[Result | ServiceError]:
        """What `_head` gave, on the host, to results."""
        if kind == "fill_mask":
            return fill_masks(tasks, MaskScores(*arrays), places=places, tokenizer=self._tokenizer)
        [values] = arrays
        match kind:
            case "next_sentence":
                return next_sentences(tasks, values)
            case "embed_all":
                return token_vectors(tasks, values)
            case "embed_sparse":
                return sparse_embeddings(tasks, values)
            case _:
                return embeddings(tasks, values)

    def warm_up(self) -> int:
        """Run every head once, and measure.

        Returns:
            How many tokens a batch may have: fixed on a GPU; on a CPU as many as take `CPU_PASS_SECONDS`, but at least
            `CPU_LEAST_BATCH_TOKENS`, and always room for the longest sequence.

        Raises:
            RuntimeError: the model cannot answer.
        """
        # Special tokens alone: no vocabulary lacks them, no normaliser drops them, and they fit the shortest model.
        mask = self._tokenizer.mask_token
        tasks: list[Task] = [Embed(text=self._ids(SHORTEST_SEQUENCE), pooling=pooling) for pooling in self._poolings()]
        if self.info.capabilities["fill_mask"]:
            tasks += [FillMask(text=mask), EmbedSparse(text=self._ids(SHORTEST_SEQUENCE))]
        if self.info.capabilities["next_sentence"]:
            tasks.append(NextSentence(text=mask, text_pair=mask, truncate="right"))
        for result in self.run([self.encode(task) for task in tasks]):
            if isinstance(result, ServiceError):
                raise RuntimeError(f"the model cannot answer: {result}")
        if self._device.type == "cuda":
            self._graphs.record(CudaRecorder(self._device))
            return CUDA_BATCH_TOKENS
        affordable = int(self._tokens_per_second() * CPU_PASS_SECONDS)
        return max(affordable, CPU_LEAST_BATCH_TOKENS, self.info.max_input_length)

    def _poolings(self) -> list[Pooling]:
        poolings: list[Pooling] = ["cls", "mean", "max"]
        if self._model.heads.pooler:
            poolings.append("pooler")
        return poolings

    def _tokens_per_second(self) -> float:
        """Of the best of several passes: what else the machine does meanwhile only ever makes one slower."""
        length = min(64, self.info.max_embed_length)
        batch = [self.encode(Embed(text=self._ids(length), pooling="mean"))] * max(1, WARM_UP_TOKENS // length)
        seconds = []
        for _ in range(WARM_UP_PASSES):
            begin = time.perf_counter()
            self.run(batch)
            seconds.append(time.perf_counter() - begin)
        return length * len(batch) / min(seconds)

    def _ids(self, length: int) -> tuple[int, ...]:
        """A whole sequence of so many ids."""
        return self._tokenizer.cls_id, *[self._tokenizer.unk_id] * (length - 2), self._tokenizer.sep_id
