"""OpenVINO: the `transformers` model converted, pooling included, in fp32 or bf16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino
import torch

from tests.benchmarks.workers.huggingface import load_pooled, padded_tokenizer
from tests.benchmarks.workers.padded import PaddedRunner
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype, sort, threads."""
    ids = torch.ones(2, 16, dtype=torch.int64)
    with torch.inference_mode():
        model = openvino.convert_model(
            load_pooled("float32"), example_input={"input_ids": ids, "attention_mask": ids}, input=[[-1, -1], [-1, -1]]
        )
    settings = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[options["dtype"]],
        "INFERENCE_NUM_THREADS": options["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()

    def forward(batch: Any) -> FloatArray:
        found = request.infer([batch["input_ids"], batch["attention_mask"]])
        return np.array(found[0], dtype=np.float32)

    return runner_handlers(PaddedRunner(tokenize=padded_tokenizer("np"), forward=forward, sort=options["sort"]))


if __name__ == "__main__":
    serve(load, packages=("openvino", "transformers", "torch"))
