"""The example for Kubernetes agrees with the service: its settings, its routes, its times, its user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from service.app import create_app
from service.observability.tracing import FLUSH_SECONDS
from service.server import GRACE_SECONDS
from service.settings import Settings, load_settings
from tests.service.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
DEPLOYMENT, SERVICE = yaml.safe_load_all((ROOT / "kubernetes.yml").read_text())
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
ENVIRONMENT = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}


def served_paths() -> set[str]:
    return {str(getattr(route, "path", "")) for route in create_app(Settings(), FakeEngine()).routes}


def settings() -> Settings:
    command, *flags = CONTAINER["args"]
    assert command == "serve"
    switches = {flag.removeprefix("--").replace("-", "_"): "true" for flag in flags}
    values = {name.lower(): value for name, value in ENVIRONMENT.items()}
    assert all(isinstance(value, str) for value in values.values())
    assert (switches | values).keys() <= Settings.model_fields.keys()
    return load_settings(switches | values)


def test_probes_ask_routes_that_exist_at_the_port_that_is_served() -> None:
    [port] = CONTAINER["ports"]
    assert port == {"name": "http", "containerPort": settings().port}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = CONTAINER[probe]["httpGet"]
        assert asked["path"] in served_paths()
        assert asked["port"] == port["name"]
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    notes = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/path"] in served_paths()
    assert notes["prometheus.io/port"] == str(port["containerPort"])


def test_a_pod_has_time_to_end() -> None:
    ending = settings()
    readiness = CONTAINER["readinessProbe"]
    assert ending.shutdown_delay_seconds > readiness["periodSeconds"] * readiness["failureThreshold"]
    needed = ending.shutdown_delay_seconds + ending.drain_timeout_seconds + GRACE_SECONDS + FLUSH_SECONDS
    assert POD["terminationGracePeriodSeconds"] >= needed


def test_the_service_finds_the_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == labels == DEPLOYMENT["spec"]["selector"]["matchLabels"]
    assert SERVICE["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]


def test_every_mount_has_its_volume_and_the_keys_are_where_they_are_looked_for() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in POD["volumes"]}
    assert ENVIRONMENT["API_KEY_FILE"].rpartition("/")[0] == mounts["api-keys"]


def test_the_user_is_the_images() -> None:
    user = re.search(r"^USER ([0-9]+):", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert user is not None
    assert POD["securityContext"]["runAsUser"] == int(user[1])
