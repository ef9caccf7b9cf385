from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import OURS, problems

ROOT = Path(__file__).parent.parent
FILES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_every_module_keeps_to_its_room(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert problems(source, module=module_of(path), is_package=path.name == "__init__.py") == []


def test_all_rooms_were_looked_at() -> None:
    modules = {module_of(path) for path in FILES}
    assert {"bert_core.model", "service.app", "service.tasks", "service.errors", "service.settings"} <= modules
    for room in ("api", "batching", "checkpoints", "engine", "observability"):
        assert any(module.startswith(f"service.{room}.") for module in modules)


WRONG = [
    ("bert_core.model", "import service", "imports service"),
    ("bert_core.model", "from service.tasks import Embed", "imports service.tasks.Embed"),
    ("bert_core.model", "def f():\n    from transformers import BertModel", "imports transformers.BertModel"),
    ("bert_core.model", "import importlib\nimportlib.import_module('service.app')", "imports service.app"),
    ("bert_core.model", "__import__(name)", "imports ?"),
    ("bert_core.model", "from bert_core import pretraining", "imports bert_core.pretraining"),
    ("bert_core.model", "from . import pretraining", "imports bert_core.pretraining"),
    ("bert_core.model", "import os\nos.environ['HOME']", "reads the environment, line 2"),
    ("bert_core.model", "import os\nos.getenv('HOME')", "reads the environment, line 2"),
    ("bert_core.model", "from os import environ", "imports os.environ"),
    ("bert_core.model", "def f():\n    print(1)", "prints, line 2"),
    ("bert_core.pretraining.trainer", "import fastapi", "imports fastapi"),
    ("service.api.native", "import torch", "imports torch"),
    ("service.api.native", "import torch.nn as nn", "imports torch.nn"),
    ("service.api.native", "from bert_core import BertConfig", "imports bert_core.BertConfig"),
    ("service.api.native", "from service import engine", "imports service.engine"),
    ("service.api.native", "from ..engine.engine import Engine", "imports service.engine.engine.Engine"),
    ("service.api.native", "from service.app import create_app", "imports service.app.create_app"),
    ("service.batching.policy", "from torch import Tensor", "imports torch.Tensor"),
    ("service.batching.policy", "import fastapi", "imports fastapi"),
    ("service.batching.policy", "from starlette.requests import Request", "imports starlette.requests.Request"),
    ("service.batching.policy", "import bert_core", "imports bert_core"),
    ("service.batching.policy", "from service.api import native", "imports service.api.native"),
    (
        "service.batching.policy",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from service.engine.engine import Engine",
        "imports service.engine.engine.Engine",
    ),
    ("service.engine.engine", "from fastapi import Request", "imports fastapi.Request"),
    ("service.engine.engine", "from service.api.schemas import X", "imports service.api.schemas.X"),
    ("service.engine.engine", "from service.batching.policy import X", "imports service.batching.policy.X"),
    ("service.observability.metrics", "import service.batching.batcher", "imports service.batching.batcher"),
    ("service.observability.metrics", "from service.engine import engine", "imports service.engine.engine"),
    ("service.tasks", "from service.api import schemas", "imports service.api.schemas"),
    ("service.errors", "from bert_core import CheckpointError", "imports bert_core.CheckpointError"),
    ("service.settings", "import torch", "imports torch"),
    ("service.app", "settings = Settings()", "makes Settings at import"),
    ("service.app", "def create_app(settings=Settings()): ...", "makes Settings at import"),
    ("service.app", "def create_app(*, settings=settings.Settings()): ...", "makes Settings at import"),
    ("service.api.native", "class Routes:\n    settings = Settings()", "makes Settings at import"),
    ("service.engine.engine", "from service.checkpoints import hub", "imports service.checkpoints.hub"),
    ("service.api.native", "from service.checkpoints.hub import X", "imports service.checkpoints.hub.X"),
    ("service.checkpoints.hub", "import fastapi", "imports fastapi"),
    ("service.checkpoints.fetching", "import huggingface_hub", "imports huggingface_hub"),
    ("bert_core.checkpoint", "from huggingface_hub import constants", "imports huggingface_hub.constants"),
    ("service.app", "import transformers", "imports transformers"),
    ("service.app", "from tests import tiny", "imports tests.tiny"),
]


@pytest.mark.parametrize(("module", "source", "fault"), WRONG)
def test_a_wrong_module_is_found(module: str, source: str, fault: str) -> None:
    assert problems(source, module=module) == [f"{module} {fault}"]


RIGHT = [
    ("bert_core.pretraining.trainer", "from bert_core.pretraining import loss\nprint('step')"),
    ("bert_core.model", "import torch\nfrom bert_core.config import BertConfig\nimport os.path"),
    ("bert_core.model", "def f(printer):\n    printer.print(1)"),
    ("service.api.native", "from fastapi import APIRouter\nfrom service.batching.batcher import Batcher"),
    ("service.engine.engine", "import torch\nfrom bert_core import load_pretrained\nfrom service.tasks import Embed"),
    ("service.batching.batcher", "from service.observability.metrics import Metrics"),
    ("service.settings", "from service.tasks import Pooling"),
    ("service.checkpoints.hub", "def f():\n    from huggingface_hub import snapshot_download"),
    ("service.checkpoints.report", "from service.engine.loading import model_info"),
    ("service.app", "from service.engine.engine import Engine\ndef create_app():\n    return Settings()"),
    ("service.__main__", "if __name__ == '__main__':\n    Settings()"),
    ("service.server", "from service.serverless import x\nimport torchvision"),
]


@pytest.mark.parametrize(("module", "source"), RIGHT)
def test_a_right_module_passes(module: str, source: str) -> None:
    assert problems(source, module=module) == []


def test_a_package_resolves_its_own_relative_imports() -> None:
    assert problems("from . import batching", module="service", is_package=True) == []
    assert problems("from .engine import engine", module="service.api", is_package=True) == []
    assert problems("from ..engine import x", module="service.api", is_package=True) == [
        "service.api imports service.engine.x"
    ]


@pytest.mark.parametrize(
    ("room", "absent"),
    [
        ("service.api", ("torch", "bert_core", "transformers")),
        ("service.batching", ("torch", "bert_core", "fastapi", "starlette", "transformers")),
        ("service.observability", ("torch", "bert_core", "fastapi", "starlette")),
        ("service.engine", ("fastapi", "starlette", "transformers")),
        ("bert_core", ("service", "fastapi", "transformers")),
    ],
)
def test_importing_a_room_loads_nothing_that_it_should_not(room: str, absent: tuple[str, ...]) -> None:
    modules = [module_of(path) for path in FILES if f"{module_of(path)}.".startswith(f"{room}.")]
    script = "\n".join(
        [
            "import importlib, sys",
            f"for module in {[module for module in modules if not module.endswith('__main__')]!r}:",
            "    importlib.import_module(module)",
            f"print([name for name in {absent!r} if name in sys.modules])",
        ]
    )
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
