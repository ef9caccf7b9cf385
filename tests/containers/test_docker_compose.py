from __future__ import annotations

import re
from pathlib import Path

from service.settings import Settings

COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"


def test_every_setting_can_reach_the_container() -> None:
    environment = COMPOSE_FILE.read_text().split("    environment:\n")[1].split("    ports:\n")[0]
    passed_on = set(re.findall(r"^      ([A-Z_]+):", environment, flags=re.MULTILINE))
    fixed_by_the_container = {"HOST", "PORT", "UDS"}
    assert {name.upper() for name in Settings.model_fields} - fixed_by_the_container <= passed_on
    assert not passed_on & fixed_by_the_container
