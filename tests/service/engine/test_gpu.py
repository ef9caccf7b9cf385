"""`pytest -m gpu`: the engine on a CUDA device."""

from __future__ import annotations

import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import torch

from service.engine.encoding import EncodedTask
from service.engine.engine import Engine
from service.engine.graphs import BUCKET_TOKENS
from service.load_generator.texts import Texts, parse_lengths
from service.settings import default_model_id
from service.tasks import Embed, EmbedResult
from tests.service.engine.device_checks import TASKS, checks, shipped_checks

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_task_is_answered_as_on_the_cpu(cuda: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    missed = [str(check) for check in checks(tmp_path, device=cuda, dtype=dtype) if not check.holds]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_shipped_checkpoint_keeps_its_bounds(cuda: torch.device, dtype: torch.dtype) -> None:
    missed = [str(check) for check in shipped_checks(device=str(cuda), dtype=dtype, texts=64) if not check.holds]
    assert not missed, "\n".join(missed)


def test_auto_takes_the_gpu_in_half_precision(cuda: torch.device) -> None:
    engine = Engine.load(default_model_id())
    assert engine.info.device == str(cuda)
    assert engine.info.dtype in ("bfloat16", "float16")


@pytest.fixture
def engine(cuda: torch.device) -> Engine:
    """The shipped checkpoint in half precision, warmed up."""
    engine = Engine.load(default_model_id(), device=str(cuda), dtype="auto")
    engine.warm_up()
    return engine


def waits(engine: Engine, encoded: list[EncodedTask]) -> list[str]:
    """Where a pass waits for the device."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine.run(encoded)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [f"{one.filename}:{one.lineno}" for one in caught if "synchronizing CUDA" in str(one.message)]


@pytest.mark.parametrize("copies", [1, 20])
def test_a_batch_waits_for_the_device_once(engine: Engine, copies: int) -> None:
    """In a graph, and with more tokens than any has."""
    encoded = [engine.encode(task) for task in TASKS.values()] * copies
    engine.run(encoded)
    assert (sum(task.compute_tokens for task in encoded) > max(BUCKET_TOKENS)) == (copies > 1)
    assert len(found := waits(engine, encoded)) == 1, found


def test_every_graph_is_recorded_and_near_enough_to_the_plain_pass(engine: Engine) -> None:
    """Warming up compares them; what it refuses is missing here, and the log says why."""
    assert [bucket.tokens for bucket in engine._graphs.buckets] == list(BUCKET_TOKENS)


@pytest.mark.parametrize("count", [1, 2, 7, 30, 100])
def test_a_graph_answers_as_the_plain_pass(cuda: torch.device, engine: Engine, count: int) -> None:
    texts = Texts(parse_lengths("6..9", limit=256), seed=count)
    tasks = [Embed(text=texts.text(), pooling=("mean", "cls")[number % 2]) for number in range(count)]
    plain = Engine.load(default_model_id(), device=str(cuda), dtype="auto")
    with mock.patch.object(engine._graphs, "encode", wraps=engine._graphs.encode) as replayed:
        ours = vectors(engine, tasks)
    assert replayed.call_count == 1
    assert float((ours * vectors(plain, tasks)).sum(1).min()) >= engine.info.least_embedding_cosine


def vectors(engine: Engine, tasks: list[Embed]) -> npt.NDArray[np.float32]:
    results = engine.run([engine.encode(task) for task in tasks])
    return np.stack([result.vector for result in results if isinstance(result, EmbedResult)])
