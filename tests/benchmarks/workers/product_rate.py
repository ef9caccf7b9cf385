"""The machine's matrix-product rate at the model's own shapes: what an engine's speed is divided by.

Per layer four products, D to 3D, D to D, D to F and F to D, each over its own weights, which oneDNN has prepacked for
the number of rows. Rows, layers and threads are the engine's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.benchmarks.texts import CHECKPOINT
from tests.benchmarks.workers.protocol import Handler, serve

Product = Callable[[], Tensor]

# Long enough for the clock, short enough to take turns with the engines.
SECONDS = 0.5


def products(*, dtype: str, rows: int) -> list[Product]:
    """All of one pass; ready to be called."""
    config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, middle), (middle, hidden)]
    make = _int8_product if dtype == "int8" else partial(_float_product, dtype=dtype)
    return [make(rows, *shape) for _ in range(config["num_hidden_layers"]) for shape in shapes]


def _float_product(rows: int, inputs: int, outputs: int, *, dtype: str) -> Product:
    kind = getattr(torch, dtype)
    rows_TI = torch.randn(rows, inputs).to(kind)
    weight_OI = torch.randn(outputs, inputs).to(kind)
    bias_O = torch.randn(outputs).to(kind)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, rows)
    return lambda: torch.ops.mkldnn._linear_pointwise(rows_TI, packed, bias_O, "none", [], "")


def _int8_product(rows: int, inputs: int, outputs: int) -> Product:
    """8-bit rows times 8-bit weights, one scale for the rows and one per channel of the weights, bfloat16 out."""
    rows_TI = torch.randint(0, 255, (rows, inputs), dtype=torch.uint8)
    weight_IO = torch.randint(-127, 127, (inputs, outputs), dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weight_IO.t().contiguous(), [rows, inputs])
    scales_O, zeros_O = torch.full((outputs,), 0.01), torch.zeros(outputs, dtype=torch.int64)
    bias_O = torch.randn(outputs)
    return lambda: torch.ops.onednn.qlinear_pointwise(
        rows_TI, 0.02, 128, packed, scales_O, zeros_O, bias_O, 1.0, 0, torch.bfloat16, "none", [], ""
    )


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: threads."""
    torch.set_num_threads(options["threads"])
    made: dict[tuple[str, int], list[Product]] = {}

    def rate(dtype: str, rows: int) -> dict[str, Any]:
        """Seconds of one pass: the median of those that fit into `SECONDS`."""
        if (dtype, rows) not in made:
            made[dtype, rows] = products(dtype=dtype, rows=rows)
        chain = made[dtype, rows]
        seconds: list[float] = []
        with torch.inference_mode():
            end = time.perf_counter() + SECONDS
            while time.perf_counter() < end or len(seconds) < 3:
                begin = time.perf_counter()
                for product in chain:
                    product()
                seconds.append(time.perf_counter() - begin)
        return {"seconds": sorted(seconds)[len(seconds) // 2], "passes": len(seconds)}

    return {"rate": rate}


if __name__ == "__main__":
    serve(load, packages=("torch",))
