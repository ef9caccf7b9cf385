from __future__ import annotations

import pytest

from service.api.paths import route_path, speaks_openai


@pytest.mark.parametrize(
    ("root_path", "path", "routed", "openai"),
    [
        ("", "/v1/models", "/v1/models", True),
        ("", "/v1", "/v1", False),
        ("", "/v10/models", "/v10/models", False),
        ("", "/embed", "/embed", False),
        ("/bert", "/bert/v1/models", "/v1/models", True),
        ("/bert", "/bertram", "/bertram", False),
        ("/bert", "/v1/models", "/v1/models", True),  # a proxy that takes the prefix off
        ("/v1", "/v1/embed", "/embed", False),
        ("/v", "/v1/models", "/v1/models", True),
    ],
)
def test_the_protocol_is_that_of_the_path_below_the_prefix(
    root_path: str, path: str, routed: str, openai: bool
) -> None:
    scope = {"type": "http", "root_path": root_path, "path": path}
    assert route_path(scope) == routed
    assert speaks_openai(scope) == openai
