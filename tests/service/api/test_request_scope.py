from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from service.api.request_scope import RouteNames, client_address, header


async def answer(_: Request) -> Response:
    return Response()


ROUTES = RouteNames(
    [
        Route("/embed", answer, methods=["POST"]),
        Route("/models/{model}", answer),
        Mount("/static", routes=[Route("/a.js", answer)]),
    ]
)


def scope(path: str, *, root_path: str = "") -> dict[str, object]:
    return {"type": "http", "method": "GET", "path": path, "root_path": root_path, "headers": []}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/embed", "/embed"),
        ("/embed/", None),
        ("/models/secret", "/models/{model}"),
        ("/models/a/b", None),
        ("/static/secret", "/static"),
        ("/secret", None),
    ],
)
@pytest.mark.parametrize("root_path", ["", "/bert"])
def test_a_route_is_named_without_what_the_caller_chose(path: str, name: str | None, root_path: str) -> None:
    assert ROUTES.of(scope(root_path + path, root_path=root_path)) == name


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.1", 80), "192.0.2.1"),
        (("fe80::1%eth0", 80), "fe80::1%eth0"),
        (None, "local"),
        (("me status=200", 0), "unknown"),
        (("a" * 65, 0), "unknown"),
        (("", 0), "unknown"),
    ],
)
def test_where_a_request_comes_from(client: tuple[str, int] | None, address: str) -> None:
    assert client_address({"client": client}) == address


def test_of_a_header_the_first_value_counts() -> None:
    headers = [(b"accept", b"a"), (b"x-name", b"caf\xe9"), (b"x-name", b"b"), (b"x-empty", b"")]
    found = [header({"headers": headers}, name) for name in (b"x-name", b"x-empty", b"x-other")]
    assert found == ["caf\u00e9", "", None]
