"""ONNX Runtime: the `transformers` model as a graph, pooling included, in fp32 or with dynamic int8."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.benchmarks.texts import CHECKPOINT
from tests.benchmarks.workers.huggingface import load_pooled, padded_tokenizer
from tests.benchmarks.workers.padded import PaddedRunner
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


def export(folder: Path) -> Path:
    """The fp32 graph, attention, gelu and LayerNorm fused by ONNX Runtime's own optimizer; once for each weights."""
    with (CHECKPOINT / "model.safetensors").open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    path = folder / f"minilm-{digest[:16]}.onnx"
    if path.exists():
        return path
    from onnxruntime.transformers import optimizer

    folder.mkdir(parents=True, exist_ok=True)
    plain = path.with_suffix(".plain")
    ids = torch.ones(2, 16, dtype=torch.int64)
    sizes = {0: "batch", 1: "length"}
    # By tracing, and with plain attention: torch.export gave other embeddings (torch 2.13, transformers 5.24), and the
    # optimizer knows SDPA's graph not as attention.
    torch.onnx.export(
        load_pooled("float32", attention="eager"),
        (ids, ids),
        plain,
        input_names=["input_ids", "attention_mask"],
        output_names=["embeddings"],
        dynamic_axes={"input_ids": sizes, "attention_mask": sizes},
        dynamo=False,
    )
    config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    graph = optimizer.optimize_model(str(plain), model_type="bert", num_heads=heads, hidden_size=hidden)
    graph.save_model_to_file(str(path))
    plain.unlink()
    return path


def quantize(path: Path) -> Path:
    """The graph with 8-bit weights and activations that are quantised as they come, made once."""
    quantized = path.with_suffix(".int8.onnx")
    if not quantized.exists():
        # Fused nodes are ONNX Runtime's own, so the types of what they give are not inferred.
        types = {"DefaultTensorType": TensorProto.FLOAT}
        quantize_dynamic(path, quantized, weight_type=QuantType.QInt8, per_channel=True, extra_options=types)
    return quantized


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype (float32 or int8), sort, threads, models (a folder for graphs)."""
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
