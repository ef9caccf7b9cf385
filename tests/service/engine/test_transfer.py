from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core.config import BertConfig
from service.engine.engine import Engine
from service.engine.transfer import to_device, to_host
from service.tasks import Embed, FillMask, NextSentence, Pooling, Task
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.service.engine.transfers import META, TransferCounter
from tests.tiny import tiny_config, tiny_model

CPU = torch.device("cpu")
POOLINGS: tuple[Pooling, ...] = ("mean", "max", "cls", "pooler")

TASKS: list[Task] = [
    *(Embed(text="hello world" * number, pooling=pooling) for number, pooling in enumerate(POOLINGS, start=1)),
    NextSentence(text="i like cookies", text_pair="do you like them?"),
    FillMask(text="[MASK] is a [MASK]", top_k=7),
    FillMask(text="how are [MASK]?", targets=("you", "them", "xyz")),
]


def engine_on_meta(folder: Path, config: BertConfig = ENGINE_CONFIG) -> tuple[Engine, TransferCounter]:
    model = tiny_model(config).to(META)
    engine = tiny_engine(folder, model)
    resident = [*model.parameters(), *model.buffers(), engine._unused_ids_U]
    return engine, TransferCounter(resident)


@pytest.mark.parametrize(
    "tasks",
    [TASKS, *([task] for task in TASKS), [*TASKS] * 3],
    ids=lambda tasks: f"{len(tasks)} {type(tasks[0]).__name__} {getattr(tasks[0], 'pooling', '')}",
)
@pytest.mark.parametrize("pooler", ["first_token_transform", "all_token_average"])
def test_a_pass_copies_to_the_device_once_and_back_once(tmp_path: Path, tasks: list[Task], pooler: str) -> None:
    engine, counter = engine_on_meta(tmp_path, tiny_config(vocab_size=ENGINE_CONFIG.vocab_size, pooler_type=pooler))
    encoded = [engine.encode(task) for task in tasks]
    with torch.inference_mode(), counter:
        results = engine._pass(encoded)
    assert len(results) == len(tasks)
    assert len(counter.to_device) == 1, counter.to_device
    assert len(counter.to_host) == 1, counter.to_host


@pytest.mark.parametrize(
    "transfer",
    [
        lambda here: here[[1, 2]],
        lambda here: here + torch.tensor([1.0, 2.0, 3.0], device=META),
        lambda here: here[torch.tensor([1, 2])],
        lambda here: here + torch.ones(3).to(META),
        lambda here: here.copy_(torch.ones(5, 3)),
    ],
)
def test_the_counter_sees_what_comes_from_the_host(transfer: Callable[[Tensor], Tensor]) -> None:
    here = torch.ones(5, 3, device=META)
    with torch.inference_mode(), TransferCounter([here]) as counter:
        transfer(here)
    assert len(counter.to_device) == 1, counter.to_device
    assert not counter.to_host


def test_the_counter_sees_what_goes_to_the_host_and_a_look_raises() -> None:
    here = torch.ones(5, 3, device=META)
    with torch.inference_mode(), TransferCounter([here]) as counter:
        assert here.cpu().shape == (5, 3)
        for look in (lambda: here.sum().item(), here.nonzero, lambda: bool(here.any()), lambda: here[here > 0]):
            with pytest.raises((RuntimeError, NotImplementedError)):
                look()
    assert len(counter.to_host) == 1
    assert not counter.to_device


def test_arrays_come_to_the_device_as_views_of_one_row() -> None:
    arrays = [np.arange(size) + 10 * size for size in (3, 0, 5)]
    on_device = to_device(arrays, device=META)
    assert [tensor.shape for tensor in on_device] == [(3,), (0,), (5,)]
    assert [tensor.storage_offset() for tensor in on_device] == [0, 3, 3]
    here = to_device(arrays, device=CPU)
    assert [tensor.tolist() for tensor in here] == [array.tolist() for array in arrays]
    arrays[0][1] = 77
    assert here[0][1] == 77


def test_tensors_come_to_the_host_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [
        torch.tensor([[7, -1, 2**31 - 1]], dtype=torch.int32),
        torch.rand(4, 5)[:, ::2],
        torch.empty(3, 0),
        torch.tensor([torch.nan, -torch.inf, 1e-42]),
    ]
    for number, array in enumerate(to_host(tensors)):
        assert np.shares_memory(array, tensors[number].numpy()) or not array.size
    # As on a device: there is none here whose values can be read.
    monkeypatch.setattr("service.engine.transfer._on_host", lambda _: False)
    for array, tensor in zip(to_host(tensors), tensors, strict=True):
        assert array.dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(array, tensor.numpy())
