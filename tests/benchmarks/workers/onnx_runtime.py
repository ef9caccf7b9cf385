"""ONNX Runtime: the `transformers` model as a graph, pooling included, in fp32 or with dynamic int8."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.benchmarks.workers.padded import PaddedRunner
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


def export(folder: Path) -> Path:
    """The fp32 graph, made once."""
    path = folder / "minilm.onnx"
    if path.exists():
        return path
    import torch

    from tests.benchmarks.workers.huggingface import load_pooled

    folder.mkdir(parents=True, exist_ok=True)
    ids = torch.ones(2, 16, dtype=torch.int64)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.onnx.export(
        load_pooled("float32"),
        (ids, ids),
        input_names=["input_ids", "attention_mask"],
        output_names=["embeddings"],
        dynamic_shapes=(sizes, sizes),
        dynamo=True,
    )
    assert program is not None
    program.save(path.with_suffix(".part"), include_initializers=True)
    path.with_suffix(".part").rename(path)
    return path


def quantize(path: Path) -> Path:
    """The graph with 8-bit weights and activations that are quantised as they come, made once."""
    quantized = path.with_name("minilm-int8.onnx")
    if not quantized.exists():
        quantize_dynamic(path, quantized.with_suffix(".part"), weight_type=QuantType.QInt8, per_channel=True)
        quantized.with_suffix(".part").rename(quantized)
    return quantized


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype (float32 or int8), sort, threads, models (a folder for graphs)."""
    from tests.benchmarks.workers.huggingface import padded_tokenizer

    path = export(Path(options["models"]))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options["threads"]
    session = onnxruntime.InferenceSession(
        quantize(path) if options["dtype"] == "int8" else path, settings, providers=["CPUExecutionProvider"]
    )

    def forward(batch: Any) -> FloatArray:
        return np.asarray(session.run(None, dict(batch))[0])

    return runner_handlers(PaddedRunner(tokenize=padded_tokenizer("np"), forward=forward, sort=options["sort"]))


if __name__ == "__main__":
    serve(load, packages=("onnxruntime", "transformers", "torch"))
