"""Servers under load, in turns: `python -m tests.benchmarks.over_http --rounds 5`.

All servers are up the whole time, each with the same number of threads; one at a time is under load. Every request of
a run is a text of its own, and each run turns the texts by other words, so that nothing is asked twice.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.contenders import ours, start, transformers
from tests.benchmarks.environments import OURS, EnvironmentMissing, log_file
from tests.benchmarks.live import (
    Running,
    Server,
    ServerFailed,
    fastapi_server,
    infinity_server,
    our_server,
    running,
)
from tests.benchmarks.load import LoadFailed, Request, run_load
from tests.benchmarks.options import Options, add_options, read_options
from tests.benchmarks.processes import Worker
from tests.benchmarks.texts import BLOCK, distinct, masked, of_length, pair, rotated, sample

MANY = 32
SHORT_TOKENS = 10

Ask = Callable[[str], Request]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of the table: a server, what it is asked and over how many connections.

    kind: rows of one kind are compared.
    """

    kind: str
    server: str
    ask: Ask
    connections: int
    texts: int

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.server


def ask_embed(text: str) -> Request:
    """Ours, and the same shape of the FastAPI peers."""
    return Request("/embed", {"inputs": text})


def ask_infinity(text: str) -> Request:
    """OpenAI's shape."""
    return Request("/embeddings", {"model": "minilm-l6-bert-en", "input": text})


def ask_fill_mask(text: str) -> Request:
    """One mask in the middle."""
    return Request("/fill-mask", {"inputs": masked(text)})


def ask_next_sentence(text: str) -> Request:
    """The two halves."""
    first, second = pair(text)
    return Request("/next-sentence", {"inputs": {"text": first, "text_pair": second}})


OUR_TASKS: Mapping[str, Ask] = {
    "/embed": ask_embed,
    "/fill-mask": ask_fill_mask,
    "/next-sentence": ask_next_sentence,
}


def servers(dtypes: Sequence[str]) -> list[tuple[Server, list[tuple[str, Ask]]]]:
    """Each server with what it can be asked."""
    found = [(our_server(dtype), list(OUR_TASKS.items())) for dtype in dtypes]
    found += [(our_server(dtype, workers=2), [("/embed", ask_embed)]) for dtype in dtypes]
    found += [(infinity_server(dtype), [("/embed", ask_infinity)]) for dtype in ("float32", "bfloat16")]
    peers: tuple[tuple[str, str, str, str, Ask], ...] = (
        ("sentence-transformers + FastAPI", "embeddings", "sentence-transformers", "/embed", ask_embed),
        ("fill-mask pipeline + FastAPI", "fill_mask", "transformers", "/fill-mask", ask_fill_mask),
        ("next-sentence model + FastAPI", "next_sentence", "transformers", "/next-sentence", ask_next_sentence),
    )
    for title, module, environment, task, ask in peers:
        found.append((fastapi_server(title, module=module, environment=environment), [(task, ask)]))
    return found


def measure(options: Options) -> dict[str, Any]:
    """Run everything.

    Returns:
        `rows` (a dict for each `Run`), `single` (one connection beside the engine in process), `short` (a text of 10
        tokens), `mixed`, `list` and `failed` (name to reason).
    """
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        live: dict[str, Running] = {}
        runs: list[Run] = []
        for server, tasks in servers(options.dtypes):
            if not options.includes(server.name):
                continue
            try:
                live[server.name] = stack.enter_context(
                    running(server, threads=options.threads, log=log_file(server.name))
                )
            except (EnvironmentMissing, ServerFailed) as error:
                failed[server.name] = str(error)
                print(f"{server.name}: {error}", flush=True)
                continue
            runs += _runs(server, tasks, texts=options.texts)
        in_process = [*ours(options.dtypes), *transformers(sort=False)]
        workers = {c.name: worker for c, worker in start(in_process, options=options, stack=stack, failed=failed)}
        warm_up = [replace(run, texts=BLOCK) for run in runs]
        _Round(-1, live=live, workers=workers, texts=sample(BLOCK)).run_rows(warm_up, failed=failed)
        rounds = [
            _Round(number, live=live, workers=workers, texts=sample(options.texts)).run(runs, failed=failed)
            for number in range(options.rounds)
        ]
    return {**_medians(rounds), "failed": failed, "rounds": options.rounds, "threads": options.threads}


def _runs(server: Server, tasks: Sequence[tuple[str, Ask]], *, texts: int) -> list[Run]:
    # A fast server answers all texts twice, so that a run lasts seconds.
    count = texts * 2 if server.environment == OURS else texts
    return [Run(kind=kind, server=server.name, ask=ask, connections=MANY, texts=count) for kind, ask in tasks]


@dataclass(frozen=True)
class _Round:
    number: int
    live: Mapping[str, Running]
    workers: Mapping[str, Worker]
    texts: list[str]

    def run(self, runs: Sequence[Run], *, failed: dict[str, str]) -> dict[str, dict[str, Any]]:
        """One run of everything; kind and name to figures."""
        found = {"rows": self.run_rows(runs, failed=failed), "single": {}, "short": {}, "mixed": {}, "list": {}}
        for name in self.live:
            if name.startswith("bert-service"):
                found["single"][name] = self._single(name, texts=self.texts[:BLOCK])
                found["short"][name] = self._single(name, texts=of_length(SHORT_TOKENS, count=2 * BLOCK))
                found["mixed"][name] = self._mixed(name)
                found["list"][name] = self._list(name)
        short = of_length(SHORT_TOKENS, count=BLOCK)
        for name, worker in self.workers.items():
            if name.startswith("transformers"):
                found["short"][name] = {"in_process": median(worker.ask("one_by_one", texts=short)["seconds"])}
        return found

    def run_rows(self, runs: Sequence[Run], *, failed: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Every server under the load of many connections; one that fails once is left out from then on."""
        found: dict[str, dict[str, Any]] = {}
        for run in runs:
            name = f"{run.kind} {run.server}"
            if name in failed:
                continue
            try:
                found[name] = {"kind": run.kind, "server": run.server, **self._load(run)}
            except LoadFailed as error:
                failed[name] = str(error)
                print(f"{name}: {error}", flush=True)
                continue
            self._print(name, found[name]["requests_per_second"])
        return found

    def _print(self, name: str, rate: float) -> None:
        title = f"round {self.number + 1}" if self.number >= 0 else "warm up"
        print(f"{title}  {name:<48} {rate:7.1f} requests/s", flush=True)

    def _turned(self, texts: Sequence[str], *, count: int) -> list[str]:
        return distinct(rotated(texts, words=3 * (self.number + 1)), count=count)

    def _load(self, run: Run) -> dict[str, float]:
        requests = [run.ask(text) for text in self._turned(self.texts, count=run.texts + run.connections)]
        return asdict(run_load(self.live[run.server].url, requests, connections=run.connections))

    def _single(self, name: str, *, texts: list[str]) -> dict[str, float]:
        """Median seconds of a text over one connection, and of the same texts one by one in process."""
        texts = self._turned(texts, count=len(texts))
        requests = [ask_embed(text) for text in texts]
        result = run_load(self.live[name].url, [*requests, requests[0]], connections=1)
        found = {"over_http": result.median}
        if name in self.workers:
            found["in_process"] = median(self.workers[name].ask("one_by_one", texts=texts)["seconds"])
        return found

    def _mixed(self, name: str) -> dict[str, float]:
        """The three tasks alone, and in turns, over the same texts: requests per second."""
        texts = self._turned(self.texts, count=len(self.texts) + MANY)
        url = self.live[name].url
        alone = [
            run_load(url, [ask(text) for text in texts], connections=MANY).requests_per_second
            for ask in OUR_TASKS.values()
        ]
        asks = list(OUR_TASKS.values())
        requests = [asks[number % len(asks)](text) for number, text in enumerate(texts)]
        mixed = run_load(url, requests, connections=MANY).requests_per_second
        # Equal numbers of each task take the sum of their times, so the average rate is the harmonic mean.
        return {"alone": len(alone) / sum(1 / rate for rate in alone), "mixed": mixed}

    def _list(self, name: str) -> dict[str, float]:
        """The same texts in one request, each in its own over many connections, and in process: texts per second."""
        texts = self._turned(self.texts, count=len(self.texts) + MANY)
        asked = texts[: len(self.texts)]
        begin = time.perf_counter()
        vectors = self.live[name].post("/embed", {"inputs": asked})
        seconds = time.perf_counter() - begin
        assert len(vectors) == len(asked)
        many = run_load(self.live[name].url, [ask_embed(text) for text in texts], connections=MANY)
        found = {"one_list": len(asked) / seconds, "many_clients": many.requests_per_second}
        engine = self.workers.get(name.split(",")[0])
        if engine is not None:
            found["in_process"] = len(asked) / engine.ask("pass", texts=asked)["seconds"]
        return found


def _medians(rounds: Sequence[Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> dict[str, Any]:
    """Each figure's median over the rounds that have it."""
    found: dict[str, Any] = {}
    for part in rounds[0]:
        names = dict.fromkeys(name for one in rounds for name in one[part])
        found[part] = []
        for name in names:
            ran = [one[part][name] for one in rounds if name in one[part]]
            row: dict[str, Any] = {"name": name}
            for key, value in ran[0].items():
                row[key] = value if isinstance(value, str) else median(one[key] for one in ran)
            found[part].append(row)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.over_http", description=__doc__)
    add_options(parser)
    options = read_options(parser.parse_args(arguments))
    report.publish({"http": measure(options)}, options=options)


if __name__ == "__main__":
    main()
