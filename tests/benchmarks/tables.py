"""What was measured, as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MIB = 2**20


def page(found: Mapping[str, Any], *, pictures: Sequence[str]) -> str:
    """The whole page; `pictures` are file names."""
    parts = [_machine(found)]
    for name, make in (("engine", _engine), ("http", _http), ("shapes", _shapes), ("cost", _cost)):
        if name in found:
            parts.append(make(found[name]))
    parts += [f"![]({picture})" for picture in pictures]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    return "\n".join([*lines, *(_row([str(cell) for cell in row]) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _machine(found: Mapping[str, Any]) -> str:
    one = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in one["packages"].items())
    return (
        f"# Benchmark, {one['date']}\n\n"
        f"{one['processor']} ({', '.join(one['features'])}), {one['cpus']} CPUs, {one['memory_gib']} GiB, "
        f"{one['system']}, Python {one['python']}; {packages}; commit {one['commit']}; "
        f"load average at the end {one['load_average']}.\n\n`{found['command']}`"
    )


def _engine(part: Mapping[str, Any]) -> str:
    figures, sums = part["mix"], part["arithmetic"]
    rows = [
        (
            one["name"],
            f"{one['texts_per_second']:.1f}",
            f"{one['texts_per_second_without_tokenization']:.1f}",
            f"{one['tokens_per_second']:,.0f}",
            f"{one['gflops']:.0f}",
            f"{one['product_gflops']:.0f}" if one["ours"] else "",
            f"{one['share_of_product_rate']:.2f}" if one["ours"] else "",
            f"{one['cosine']:.5f}",
            f"{min(one['all_texts_per_second']):.1f} … {max(one['all_texts_per_second']):.1f}",
        )
        for one in sorted(part["engines"], key=lambda one: -float(one["texts_per_second"]))
    ]
    head = ("engine", "texts/s", "without tokenization", "tokens/s", "GFLOP/s", "product GFLOP/s", "share", "cosine")
    packages = {f"{name} {version}" for one in part["engines"] for name, version in one["versions"].items()}
    return "\n\n".join(
        [
            "## Engines in process",
            f"{figures['texts']} texts, tokens: median {figures['median']:.0f}, mean {figures['mean']:.0f}, 95 % under "
            f"{figures['percentile_95']:.0f}, longest {figures['longest']}. Medians of {part['rounds']} rounds, "
            f"{part['threads']} threads each. Tokenization included. GFLOP/s counts the full trunk: "
            f"{sums['products_per_token'] / 1e6:.1f} MFLOP a token in products, "
            f"{sums['with_attention_per_token'] / 1e6:.1f} with attention on this mix.",
            table((*head, "range of texts/s"), rows),
            f"Versions: {', '.join(sorted(packages))}.",
            _failures(part["failed"]),
        ]
    ).rstrip()


def _http(part: Mapping[str, Any]) -> str:
    rows = [
        (
            row["name"],
            f"{row['requests_per_second']:.1f}",
            *(_milliseconds(row[name]) for name in ("median", "percentile_90", "percentile_99")),
        )
        for row in part["rows"]
    ]
    single = [
        (row["name"], _milliseconds(row["over_http"]), *_beside(row, "in_process", "over_http"))
        for row in part["single"]
    ]
    short = [
        (row["name"], *(_milliseconds(row[name]) if name in row else "" for name in ("over_http", "in_process")))
        for row in part["short"]
    ]
    mixed = [
        (row["name"], f"{row['alone']:.1f}", f"{row['mixed']:.1f}", f"{row['mixed'] / row['alone']:.2f}")
        for row in part["mixed"]
    ]
    lists = [
        (
            row["name"],
            f"{row['one_list']:.1f}",
            f"{row['many_clients']:.1f}",
            f"{row['many_clients'] / row['one_list']:.2f}",
            *_share(row, "many_clients", of="in_process"),
        )
        for row in part["list"]
    ]
    return "\n\n".join(
        [
            "## Over HTTP",
            f"wrk, distinct texts, medians of {part['rounds']} rounds, {part['threads']} threads each server.",
            "### 32 connections",
            table(("task, server", "requests/s", "p50 ms", "p90 ms", "p99 ms"), rows),
            "### One connection, median",
            table(("server", "over HTTP ms", "in process ms", "difference ms"), single),
            "### A text of 10 tokens, median",
            table(("", "over HTTP ms", "in process ms"), short),
            "### Three tasks mixed, requests/s",
            table(("server", "average of each alone", "mixed", "ratio"), mixed),
            "### One list, the same texts from 32 clients, and the engine in process, texts/s",
            table(("server", "one list", "32 clients", "ratio", "in process", "32 clients' share"), lists),
            _failures(part["failed"]),
        ]
    ).rstrip()


def _share(row: Mapping[str, Any], name: str, of: str) -> tuple[str, str]:
    if of not in row:
        return "", ""
    return f"{row[of]:.1f}", f"{row[name] / row[of]:.2f}"


def _beside(row: Mapping[str, Any], name: str, than: str) -> tuple[str, str]:
    if name not in row:
        return "", ""
    return _milliseconds(row[name]), _milliseconds(row[than] - row[name])


def _shapes(part: Mapping[str, Any]) -> str:
    connections = part["connections"]
    return "\n\n".join(
        [
            "## By shape",
            f"Medians of {part['rounds']} rounds, {part['threads']} threads.",
            "### Tokens per second by length of text, without tokenization",
            _grid(part["lengths"], "tokens per text", "{:,.0f}"),
            "### Peak resident memory after texts of each length, MiB",
            _grid({name: {x: y / MIB for x, y in row.items()} for name, row in part["memory"].items()}, "", "{:,.0f}"),
            "### Texts per second by size of batch",
            _grid(part["batches"], "texts per batch", "{:,.1f}"),
            "### Texts per second by pooling: cls needs one row of the last layer",
            _grid(part["poolings"], "pooling", "{:,.1f}"),
            "### Requests per second by connections",
            _grid(
                {name: {x: one["requests_per_second"] for x, one in row.items()} for name, row in connections.items()},
                "connections",
                "{:,.1f}",
            ),
            "### Median latency by connections, ms",
            _grid(
                {name: {x: one["median"] * 1e3 for x, one in row.items()} for name, row in connections.items()},
                "connections",
                "{:,.1f}",
            ),
            _failures(part["failed"]),
        ]
    ).rstrip()


def _grid(rows: Mapping[str, Mapping[Any, float]], corner: str, form: str) -> str:
    columns = list(next(iter(rows.values()), {}))
    head = (corner, *(str(column) for column in columns))
    return table(head, [(name, *(form.format(row[column]) for column in columns)) for name, row in rows.items()])


def _cost(part: Mapping[str, Any]) -> str:
    bare_seconds, bare_bytes = part["import_torch_seconds"], part["import_torch_bytes"]
    rows = [
        (
            one["dtype"],
            f"{one['ready_seconds']:.2f}",
            f"{one['ready_seconds'] - bare_seconds:+.2f}",
            f"{one['weight_bytes'] / MIB:.0f}",
            f"{one['ready_bytes'] / MIB:.0f}",
            f"{(one['ready_bytes'] - bare_bytes - 1.15 * one['weight_bytes']) / MIB:+.0f}",
            f"{one['bytes_after_first'] / MIB:.0f}",
            f"{one['bytes_after_all'] / MIB:.0f}",
            f"{one['peak_bytes'] / MIB:.0f}",
        )
        for one in part["servers"]
    ]
    head = ("dtype", "ready s", "over import torch s", "weights MiB", "resident MiB")
    more = ("over import torch + 1.15 weights MiB", "after 500 requests", f"after {part['requests']} more", "peak")
    return "\n\n".join(
        [
            "## Cost",
            f"A Python that only imports torch takes {bare_seconds:.2f} s and {bare_bytes / MIB:.0f} MiB. "
            f"Medians of {part['rounds']} starts.",
            table((*head, *more), rows),
        ]
    )


def _failures(failed: Mapping[str, str]) -> str:
    if not failed:
        return ""
    return "Did not run:\n\n" + "\n".join(f"- {name}: {reason}" for name, reason in failed.items())


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
