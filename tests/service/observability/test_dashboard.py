"""The dashboard and the alerts ask for nothing that does not exist, and look like what Grafana and Prometheus read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from service.observability.metrics import Metrics
from tests.live_server import ROOT

FOLDER = ROOT / "service" / "observability"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = DASHBOARD["panels"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]

SERIES = re.findall(r"^([a-z_]+)(?:{(.*)})? [0-9.]+$", Metrics().render()[0].decode(), flags=re.MULTILINE)


def labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'([a-z]+)=~?"([^"]*)"', text))


@pytest.mark.parametrize(
    "query", [*QUERIES, *(rule["expr"] for rule in ALERTS), VARIABLES["instance"]["query"]["query"]]
)
def test_every_query_names_series_that_exist(query: str) -> None:
    asked = re.findall(r"\b((?:te|bert)_[a-z_]+)(?:{([^}]*)})?", query)
    assert asked
    for name, selector in asked:
        wanted = labels(selector)
        wanted.pop("instance", None)
        for label, pattern in wanted.items():
            for value in pattern.split("|"):
                assert any(series == name and labels(shown).get(label) == value for series, shown in SERIES)
        assert any(series == name for series, _ in SERIES)
    for grouped in re.findall(r"by \(([a-z]+)\)", query):
        assert grouped == "instance" or any(grouped in labels(shown) for name, shown in SERIES if name == asked[0][0])
    assert query.count("(") == query.count(")")


def test_every_metric_is_shown_but_teis_times_of_single_texts() -> None:
    shown = {
        re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:te|bert)_[a-z_]+", "\n".join(QUERIES))
    }
    there = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in SERIES}
    hidden = {f"te_embed_{name}duration" for name in ("", "tokenization_", "queue_", "inference_")}
    assert there - shown == hidden | {"te_request_success"}


def test_the_dashboard_has_what_grafana_asks_for() -> None:
    assert DASHBOARD["uid"] == "bert-service"
    assert DASHBOARD["schemaVersion"] >= 36
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["type"] == "timeseries"
        assert panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place: dict[str, int] = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(column, row) for column in columns for row in rows}
        assert not cells & taken
        taken |= cells


def test_each_alert_stands_in_the_runbook() -> None:
    runbook = (ROOT / "service" / "OPERATIONS.md").read_text()
    rule: dict[str, Any]
    for rule in ALERTS:
        assert f"`{rule['alert']}`" in runbook
        assert rule["annotations"]["summary"]
        assert re.fullmatch("[0-9]+m", rule["for"])
