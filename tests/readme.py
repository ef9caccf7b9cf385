"""The parts of the README and of OPERATIONS.md that follow the code: file tree, settings, errors and metrics.

`python -m tests.readme` writes them anew; a test sees that they are up to date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from service.api.error_responses import ERROR_KINDS
from service.errors import Overloaded, ServiceError
from service.observability.metrics import Metrics
from service.settings import ENVIRONMENT_ONLY, Settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
OPERATIONS = ROOT / "service" / "OPERATIONS.md"

PACKAGES = ("bert_core", "service")

# What is not a Python module, and folders.
GLOSSES = {
    "bert_core": "the library: imports nothing of the service, reads no environment variable; only its commands print",
    "bert_core/pretraining": "the two tasks that checkpoints are made by, from text to weights",
    "service": "the HTTP service; requests go from api to batching to engine to bert_core and back",
    "service/api": "HTTP and JSON to tasks, results to HTTP and JSON",
    "service/batching": "one queue, one loop, a model thread or several; knows neither torch nor HTTP",
    "service/checkpoints": "folders and names on the hub to checkpoints that are whole, and reports about them",
    "service/engine": "tasks to ids to one pass to results",
    "service/load_generator": "`bert-service bench`: load on a user's own server, and what it measures",
    "service/observability": "metrics, logs and traces; a Grafana dashboard and Prometheus alerts",
    "service/static": "what browsers get: the page on / and the assets of /docs",
    "weights": "the default checkpoint, and how to add another",
    "tests": "one file a module, in folders like the source's",
    "tests/benchmarks": "speed, side by side with what else there is",
    "tests/containers": "the composed service, asked from inside",
    "Dockerfile": "the image: non-root, read-only, with the default checkpoint",
    "docker-compose.yml": "the service on a host with a GPU",
    "docker-compose.cpu.yml": "what changes on a host without one",
    "kubernetes.yml": "an example Deployment with probes, keys and a graceful end, and its Service",
    "Makefile": "chores: serve, test, browser, mutants, bench, format, clean",
    "constraints.txt": "the versions that are tested together",
    "pyproject.toml": "package, dependencies, and settings of the tools",
    ".ci/run": "what every change must pass",
}
OUTLINE = ("weights", "tests", "Dockerfile", "docker-compose.yml", "docker-compose.cpu.yml", "kubernetes.yml",
           "Makefile", "constraints.txt", "pyproject.toml", ".ci/run")  # fmt: skip


def file_tree() -> str:
    """Every folder and module with one gloss, which for a module is the first sentence of its docstring."""
    lines = [line for package in PACKAGES for line in _lines(ROOT / package, depth=0)]
    lines += [(f"{name}/" if (ROOT / name).is_dir() else name, GLOSSES[name]) for name in OUTLINE]
    width = max(len(path) for path, _ in lines) + 2
    return "\n".join(f"{path:{width}}{gloss}" for path, gloss in lines)


def _lines(path: Path, *, depth: int) -> Iterator[tuple[str, str]]:
    indent = "  " * depth
    name = str(path.relative_to(ROOT))
    if path.is_file():
        yield indent + path.name, _first_sentence(path)
        return
    yield f"{indent}{path.name}/", GLOSSES[name]
    folders = [child for child in path.iterdir() if child.is_dir()]
    children = [one for one in folders if str(one.relative_to(ROOT)) in GLOSSES or any(one.glob("*.py"))]
    modules = [child for child in path.glob("*.py") if child.name != "__init__.py"]
    for child in sorted(modules) + sorted(children):
        yield from _lines(child, depth=depth + 1)


def _first_sentence(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    assert docstring, f"{module} has no docstring"
    first = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])\. (?=[A-Z])", first)[0].rstrip(".:")


def settings_table() -> str:
    """Every setting with its default."""
    rows = ["| flag | variable | default | what it is |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        assert field.description is not None
        description = field.description.partition(" (default: ")[0].replace("|", "\\|")
        flag = "none" if name in ENVIRONMENT_ONLY else f"`--{name.replace('_', '-')}`"
        rows.append(f"| {flag} | `{name.upper()}` | {_default(field)} | {description} |")
    return "\n".join(rows)


def _default(field: FieldInfo) -> str:
    """As in the description, where the value is worked out later; else the value."""
    if told := re.search(r" \(default: (.*)\)", field.description or ""):
        return told[1]
    default = field.get_default()
    if default in (PydanticUndefined, None, (), ""):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def metrics_table() -> str:
    """Every metric with its type, its labels and their values."""
    text = Metrics().render()[0].decode()
    rows = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    for name, meaning in re.findall(r"^# HELP (\S+) (.*)$", text, flags=re.MULTILINE):
        found = re.search(rf"^# TYPE {name} (.*)$", text, flags=re.MULTILINE)
        assert found is not None
        rows.append(f"| `{name}` | {found[1]} | {_labels(name, text)} | {meaning} |")
    return "\n".join(rows)


def _labels(name: str, text: str) -> str:
    pairs = re.findall(rf'^{name}{{([a-z]+)="([^"]*)"}}', text, flags=re.MULTILINE)
    return f"`{pairs[0][0]}`: {', '.join(value for _, value in pairs)}" if pairs else ""


def errors_table() -> str:
    """Every error with its status, its name in answers and its name in metrics."""
    rows = ["| status | `error_type` | `err` in `te_request_failure` | when |", "|---|---|---|---|"]
    bases = {base for error_type in ERROR_KINDS for base in error_type.__bases__}
    kinds = {error_type: kind for error_type, kind in ERROR_KINDS.items() if error_type not in bases}
    for error_type, kind in sorted(kinds.items(), key=lambda entry: entry[1].status):
        rows.append(f"| {kind.status} | `{kind.error_type}` | `{_failure_name(error_type)}` | {kind.meaning} |")
    return "\n".join(rows)


def _failure_name(error_type: type[ServiceError]) -> str:
    metrics = Metrics()
    error = Overloaded("", retry_after_seconds=1) if error_type is Overloaded else error_type("")
    metrics.request_failed(error)
    [name] = re.findall(r'^te_request_failure{err="([^"]*)"} 1.0$', metrics.render()[0].decode(), flags=re.MULTILINE)
    return str(name)


def _with_table(text: str, table: str) -> str:
    """The text with the table of the same header made anew."""
    header = table.partition("\n")[0]
    pattern = re.escape(header) + r"\n(?:\|.*(?:\n|$))*"
    assert re.search(pattern, text), f"no table begins with {header}"
    return re.sub(pattern, lambda _: table + "\n", text, count=1)


def with_current_parts(text: str) -> str:
    """The README's text with its parts made anew."""
    text = re.sub(r"(```text\n).*?(\n```)", lambda found: found[1] + file_tree() + found[2], text, count=1, flags=re.S)
    return _with_table(_with_table(text, settings_table()), errors_table())


def with_current_metrics(text: str) -> str:
    """The text of OPERATIONS.md with its table made anew."""
    return _with_table(text, metrics_table())


if __name__ == "__main__":
    for path, renew in ((README, with_current_parts), (OPERATIONS, with_current_metrics)):
        path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")
