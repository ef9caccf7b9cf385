"""Engines in process, in turns: `python -m tests.benchmarks.engine --rounds 5`.

Every engine embeds the same texts in the same order of arrival with the same number of threads. A round is one pass
of each, tokenization included; the figures are medians over the rounds. Interleaved with them the machine's
matrix-product rate is measured, and each of our passes is divided by the rate of its own round.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks import report
from tests.benchmarks.arithmetic import trunk
from tests.benchmarks.contenders import Contender, contenders, start
from tests.benchmarks.environments import OURS, log_file
from tests.benchmarks.options import Options, add_options, read_options
from tests.benchmarks.processes import Worker
from tests.benchmarks.texts import mix, sample

CHECKED_TEXTS = 64


def measure(options: Options) -> dict[str, Any]:
    """Run everything.

    Returns:
        `mix`, `arithmetic`, `engines` (a dict for each) and `failed` (name to reason).
    """
    texts = sample(options.texts)
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        workers = start(contenders(our_dtypes=options.dtypes), options=options, stack=stack, failed=failed)
        rates = stack.enter_context(
            Worker("product_rate", environment=OURS, options={}, threads=options.threads, log=log_file("product rate"))
        )
        works = {c.name: worker.ask("work", texts=texts) for c, worker in workers if c.is_ours}
        if not works:
            raise SystemExit("none of our own engines runs")
        lengths = next(iter(works.values()))["lengths"]
        cosines = _cosines(workers, texts=texts, failed=failed)
        workers = [(c, worker) for c, worker in workers if c.name not in failed]
        rounds = [
            _round(workers, texts=texts, rates=rates, works=works, number=number) for number in range(options.rounds)
        ]
    operations = trunk().operations(lengths)
    engines = []
    for contender, worker in workers:
        passes = [one[contender.name] for one in rounds]
        engines.append(
            {
                **_figures(passes, texts=len(texts), tokens=sum(lengths), operations=operations),
                "name": contender.name,
                "dtype": contender.dtype,
                "ours": contender.is_ours,
                "versions": worker.versions,
                "cosine": cosines[contender.name],
                **(
                    {key: works[contender.name][key] for key in ("batches", "batch_tokens")}
                    if contender.is_ours
                    else {}
                ),
            }
        )
    return {
        "mix": asdict(mix(lengths)),
        "arithmetic": {
            "products_per_token": trunk().products_per_token,
            "with_attention_per_token": operations / sum(lengths),
        },
        "engines": engines,
        "failed": failed,
        "rounds": options.rounds,
        "threads": options.threads,
    }


def _cosines(
    workers: Sequence[tuple[Contender, Worker]], *, texts: list[str], failed: dict[str, str]
) -> dict[str, float]:
    """The least cosine of each engine's embeddings to our own in float32 (else our first); warms all of them up."""
    ours = [(c, worker) for c, worker in workers if c.is_ours]
    reference = next((worker for c, worker in ours if c.dtype == "float32"), ours[0][1]).vectors(texts[:CHECKED_TEXTS])
    cosines = {}
    for contender, worker in workers:
        found = worker.vectors(texts[:CHECKED_TEXTS])
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
        cosines[contender.name] = cosine = float(((found * reference).sum(1) / norms).min())
        if not cosine >= contender.least_cosine:
            failed[contender.name] = f"its embeddings are not ours: cosine {cosine:.4f} < {contender.least_cosine}"
            print(f"{contender.name}: {failed[contender.name]}", flush=True)
    return cosines


def _round(
    workers: Sequence[tuple[Contender, Worker]],
    *,
    texts: list[str],
    rates: Worker,
    works: dict[str, dict[str, Any]],
    number: int,
) -> dict[str, dict[str, Any]]:
    """One pass of each engine; around each of ours, before and after, the product rate of its dtype."""
    found = {}
    for contender, worker in workers:
        if not contender.is_ours:
            found[contender.name] = worker.ask("pass", texts=texts)
        else:
            work = works[contender.name]
            rows = round(sum(work["lengths"]) / work["batches"])
            before = _product_rate(rates, dtype=contender.dtype, rows=rows)
            found[contender.name] = worker.ask("pass", texts=texts)
            after = _product_rate(rates, dtype=contender.dtype, rows=rows)
            found[contender.name]["product_rate"] = (before + after) / 2
        seconds = found[contender.name]["seconds"]
        print(f"round {number + 1}  {contender.name:<42} {len(texts) / seconds:7.1f} texts/s", flush=True)
    return found


def _product_rate(rates: Worker, *, dtype: str, rows: int) -> float:
    """Operations per second."""
    return trunk().products_per_token * rows / float(rates.ask("rate", dtype=dtype, rows=rows)["seconds"])


def _figures(passes: Sequence[dict[str, Any]], *, texts: int, tokens: int, operations: int) -> dict[str, Any]:
    seconds = median(one["seconds"] for one in passes)
    model_seconds = median(one["seconds"] - one["tokenization_seconds"] for one in passes)
    figures = {
        "texts_per_second": texts / seconds,
        "tokens_per_second": tokens / seconds,
        "texts_per_second_without_tokenization": texts / model_seconds,
        "all_texts_per_second": [texts / one["seconds"] for one in passes],
        "gflops": operations / seconds / 1e9,
    }
    if "product_rate" in passes[0]:
        figures["share_of_product_rate"] = median(operations / one["seconds"] / one["product_rate"] for one in passes)
        figures["share_of_product_rate_without_tokenization"] = median(
            operations / (one["seconds"] - one["tokenization_seconds"]) / one["product_rate"] for one in passes
        )
        figures["product_gflops"] = median(one["product_rate"] for one in passes) / 1e9
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engine", description=__doc__)
    add_options(parser)
    options = read_options(parser.parse_args(arguments))
    report.publish({"engine": measure(options)}, options=options)


if __name__ == "__main__":
    main()
