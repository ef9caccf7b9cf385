"""Which module may import what, checked by reading the source: nothing is imported.

    service/api ──► service/batching ──► service/engine ──► bert_core
    ground floor, imports nothing of ours: service/tasks.py  service/errors.py  service/settings.py

The arrow from batching to engine is a call and not an import: the application hands the engine in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

WEB = ("fastapi", "starlette", "uvicorn", "httptools")
OURS = ("bert_core", "service")
GROUND_FLOOR = ("service.tasks", "service.errors", "service.settings")
JOINERS = (
    "service.app",
    "service.lifecycle",
    "service.server",
    "service.workers",
    "service.ending",
    "service.__main__",
)
CHECKPOINTS = "service.checkpoints"
ROOMS = ("service.api", "service.batching", "service.engine", CHECKPOINTS)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Modules under `room` import nothing under `forbidden`, what is under `allowed` excepted."""

    room: str
    forbidden: tuple[str, ...]
    allowed: tuple[str, ...] = ()


RULES = (
    Rule(room="bert_core", forbidden=("service", "transformers", "tests", *WEB)),
    Rule(room="service", forbidden=("transformers", "tests")),
    Rule(room="service.api", forbidden=("torch", "bert_core", "service.engine", CHECKPOINTS, *JOINERS)),
    Rule(
        room="service.batching",
        forbidden=("torch", "bert_core", *WEB, "service.engine", "service.api", CHECKPOINTS, *JOINERS),
    ),
    Rule(room="service.engine", forbidden=(*WEB, "service.api", "service.batching", CHECKPOINTS, *JOINERS)),
    Rule(room=CHECKPOINTS, forbidden=(*WEB, "service.api", "service.batching", *JOINERS)),
    Rule(room="service.observability", forbidden=("torch", "bert_core", *WEB, *ROOMS, *JOINERS)),
    *(Rule(room=module, forbidden=("torch", *OURS), allowed=GROUND_FLOOR) for module in GROUND_FLOOR),
)
COMMAND = "bert_core.pretraining"
"""The one part of the library that prints, and that nothing else imports."""

HUB = "service.checkpoints.hub"
"""The one module that talks to the Hugging Face hub."""


def under(module: str, package: str) -> bool:
    """Whether `module` is `package` or in it."""
    return module == package or module.startswith(package + ".")


def imported(tree: ast.AST, *, module: str, is_package: bool) -> set[str]:
    """Everything that a module imports, in functions too, as absolute dotted names; `from a import b` is `a.b`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module=module, is_package=is_package)
            names |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            # A name that is made at run time cannot be checked, so it is no name at all and breaks every rule.
            first = node.args[0] if node.args else None
            literal = isinstance(first, ast.Constant) and isinstance(first.value, str)
            names.add(str(first.value) if literal and isinstance(first, ast.Constant) else "?")
    return names


def _absolute(node: ast.ImportFrom, *, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parents = parts[: len(parts) - node.level + is_package]
    return ".".join([*parents, node.module] if node.module else parents)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def problems(source: str, *, module: str, is_package: bool = False) -> list[str]:
    """What is wrong with a module, one line a fault."""
    tree = ast.parse(source)
    names = imported(tree, module=module, is_package=is_package)
    faults = [f"{module} imports {name}" for name in sorted(names) if _is_wrong(module, name)]
    if under(module, "bert_core"):
        faults += [f"{module} {fault}" for fault in _impurities(tree, prints=under(module, COMMAND))]
    return faults + [f"{module} makes {name} at import" for name in _made_at_import(tree, names=("Settings",))]


def _is_wrong(module: str, name: str) -> bool:
    if name == "?" or (under(name, COMMAND) and not under(module, COMMAND)):
        return True
    if under(name, "huggingface_hub") and module != HUB:
        return True
    return any(
        under(module, rule.room)
        and any(under(name, package) for package in rule.forbidden)
        and not any(under(name, package) for package in rule.allowed)
        for rule in RULES
    )


def _impurities(tree: ast.AST, *, prints: bool) -> Iterator[str]:
    """Uses of the environment, and prints."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            yield f"reads the environment, line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"imports os.{a.name}" for a in node.names if a.name in ("environ", "environb", "getenv"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and not prints:
            yield f"prints, line {node.lineno}"


def _made_at_import(tree: ast.AST, *, names: tuple[str, ...]) -> Iterator[str]:
    """Calls of the named classes that run when the module is imported: outside functions, or as a default."""
    pending = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and _called(node) in names:
            yield _called(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.Lambda):
            pending += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif not (isinstance(node, ast.If) and _is_main_guard(node)):
            pending += ast.iter_child_nodes(node)


def _is_main_guard(node: ast.If) -> bool:
    return ast.unparse(node.test) == "__name__ == '__main__'"
