"""Which engines are compared in process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.environments import OURS, EnvironmentMissing, bench_home, log_file
from tests.benchmarks.options import Options
from tests.benchmarks.processes import Worker, WorkerFailed


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One engine in one way of use.

    least_cosine: how near its embeddings must be to ours in float32, so that the same work is measured.
    """

    name: str
    module: str
    environment: str
    dtype: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def least_cosine(self) -> float:
        return 0.98 if self.dtype == "int8" else 0.99

    @property
    def is_ours(self) -> bool:
        return self.environment == OURS


def ours(dtypes: Sequence[str]) -> list[Contender]:
    """Our engine in each dtype."""
    return [Contender(name=f"bert-service {dtype}", module="ours", environment=OURS, dtype=dtype) for dtype in dtypes]


def padded(title: str, *, module: str, environment: str, dtypes: Sequence[str], sort: bool) -> list[Contender]:
    """A peer that pads batches: in the order of arrival, or sorted by length."""
    return [
        Contender(
            name=f"{title} {dtype}, {'sorted' if sort else 'arrival order'}",
            module=module,
            environment=environment,
            dtype=dtype,
            options={"sort": sort, "models": str(bench_home() / "models")},
        )
        for dtype in dtypes
    ]


def transformers(*, sort: bool) -> list[Contender]:
    """`transformers` with SDPA: the peer of every comparison."""
    dtypes = ("float32", "bfloat16")
    return padded("transformers", module="huggingface", environment="transformers", dtypes=dtypes, sort=sort)


def contenders(*, our_dtypes: Sequence[str]) -> list[Contender]:
    """Everything that is compared in process."""
    found = ours(our_dtypes)
    for sort in (False, True):
        found += transformers(sort=sort)
        for title, module, dtypes in (
            ("ONNX Runtime", "onnx_runtime", ("float32", "int8")),
            ("OpenVINO", "open_vino", ("float32", "bfloat16")),
        ):
            environment = module.replace("_", "")
            found += padded(title, module=module, environment=environment, dtypes=dtypes, sort=sort)
    return found + [
        Contender(
            name=f"sentence-transformers {dtype}, sorted",
            module="sentence_transformer",
            environment="sentence-transformers",
            dtype=dtype,
        )
        for dtype in ("float32", "bfloat16")
    ]


def start(
    wanted: Sequence[Contender], *, options: Options, stack: contextlib.ExitStack, failed: dict[str, str]
) -> list[tuple[Contender, Worker]]:
    """A worker for each that the options do not leave out; why the others do not run is added to `failed`."""
    workers = []
    for contender in wanted:
        if not options.includes(contender.name):
            continue
        try:
            worker = Worker(
                contender.module,
                environment=contender.environment,
                options={"dtype": contender.dtype, **contender.options},
                threads=options.threads,
                log=log_file(contender.name),
            )
        except (EnvironmentMissing, WorkerFailed) as error:
            failed[contender.name] = str(error)
            print(f"{contender.name}: {error}", flush=True)
            continue
        workers.append((contender, stack.enter_context(worker)))
    return workers
