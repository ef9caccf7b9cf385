"""Every task of the engine on a device, against float32 on the CPU, alone and among neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bert_core import BertForPreTraining
from service.engine.engine import Engine
from service.load_generator.texts import Texts, parse_lengths
from service.settings import default_model_id
from service.tasks import Embed, EmbedResult, FillMask, FillMaskResult, NextSentence, NextSentenceResult, Task
from tests.device_checks import GAP_BOUNDS, Check, compared
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.tiny import tiny_config, tiny_model

TASKS: Mapping[str, Task] = {
    "embed, mean": Embed(text="hello world", pooling="mean", normalize=False),
    "embed, max": Embed(text="apple tv", pooling="max", normalize=False),
    "embed, cls": Embed(text="king of france", pooling="cls", normalize=False),
    "embed, pooler": Embed(text="the queen", pooling="pooler"),
    "embed, long": Embed(text="paris is the capital of france. " * 4, pooling="mean"),
    "next sentence": NextSentence(text="i like cookies", text_pair="do you like them?"),
    "fill-mask, targets": FillMask(text="how are [MASK]?", targets=("you", "them", "king")),
    "fill-mask, targets of pieces": FillMask(text="paris is [MASK].", targets=("xyz", "in")),
    "fill-mask, two masks": FillMask(text="[MASK] is the [MASK]", top_k=1),
}

COSINE_BOUNDS = {torch.float32: 0.999999, torch.float16: 0.9999, torch.bfloat16: 0.9995}
AGREEMENT_BOUNDS = {torch.float32: 0.98, torch.float16: 0.98, torch.bfloat16: 0.95}
"""Of the shipped checkpoint: the least cosine of an embedding to float32's, and the least part of equal first guesses.

The words are in a chance order, so that many guesses are close.
"""


def checks(folder: Path, *, device: torch.device, dtype: torch.dtype) -> list[Check]:
    """Compare tiny engines, task by task: alone, and all in one pass."""
    (folder / "device").mkdir()
    (folder / "right").mkdir()
    engine = tiny_engine(folder / "device", _model(dtype).to(device))
    right = tiny_engine(folder / "right", _model(dtype).float())
    alone = {name: _numbers(task, right.run([right.encode(task)])[0]) for name, task in TASKS.items()}
    together = engine.run([engine.encode(task) for task in TASKS.values()])
    ways = {
        "alone": {name: _numbers(task, engine.run([engine.encode(task)])[0]) for name, task in TASKS.items()},
        "together": {
            name: _numbers(task, result) for (name, task), result in zip(TASKS.items(), together, strict=True)
        },
    }
    kind = str(dtype).removeprefix("torch.")
    return [
        check
        for way, found in ways.items()
        for check in compared(found, alone, name=f"engine, {kind}, {way}", bound=GAP_BOUNDS[dtype])
    ]


def _model(dtype: torch.dtype) -> BertForPreTraining:
    """Head width 16, which flash attention takes."""
    config = tiny_config(
        hidden_size=48, num_attention_heads=3, vocab_size=ENGINE_CONFIG.vocab_size, max_position_embeddings=77
    )
    model = tiny_model(config, seed=11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(0.5)
    return model.to(dtype)


def _numbers(task: Task, result: object) -> Tensor:
    match task, result:
        case Embed(), EmbedResult(vector=vector):
            return torch.from_numpy(vector)
        case NextSentence(), NextSentenceResult(logits=logits):
            return torch.tensor(logits)
        case FillMask(), FillMaskResult(masks=masks):
            # By name: half precision may change the order of candidates that score alike.
            best = (sorted(mask.predictions, key=lambda one: one.token_str) for mask in masks)
            return torch.tensor([one.score for predictions in best for one in predictions])
    raise AssertionError(f"{type(task).__name__} got {result}")


def shipped_checks(*, device: str, dtype: torch.dtype, texts: int) -> list[Check]:
    """The shipped checkpoint: cosines of embeddings, and agreement on the first guess for a mask."""
    name = str(dtype).removeprefix("torch.")
    whole, masked = (Texts(parse_lengths("7..99", limit=256), seed=seed) for seed in (1, 2))
    tasks: list[Task] = [Embed(text=whole.text()) for _ in range(texts)]
    tasks += [FillMask(text=masked.masked("[MASK]"), top_k=1) for _ in range(texts)]
    right = _answers(Engine.load(default_model_id(), device="cpu", dtype="float32"), tasks)
    ours = _answers(Engine.load(default_model_id(), device=device, dtype=name), tasks)
    cosine = float((ours[0] * right[0]).sum(1).min())
    agreement = float(np.mean([mine == theirs for mine, theirs in zip(ours[1], right[1], strict=True)]))
    return [
        Check(name=f"shipped, {name}: 1 - cosine", gap=1 - cosine, bound=1 - COSINE_BOUNDS[dtype]),
        Check(name=f"shipped, {name}: other first guess", gap=1 - agreement, bound=1 - AGREEMENT_BOUNDS[dtype]),
    ]


def _answers(engine: Engine, tasks: Sequence[Task]) -> tuple[npt.NDArray[np.float32], list[int | None]]:
    results = engine.run([engine.encode(task) for task in tasks])
    vectors = [result.vector for result in results if isinstance(result, EmbedResult)]
    guesses = [result.masks[0].predictions[0].token for result in results if isinstance(result, FillMaskResult)]
    assert len(vectors) + len(guesses) == len(tasks)
    return np.stack(vectors), guesses
