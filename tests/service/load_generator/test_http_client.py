from __future__ import annotations

import asyncio

import pytest

from service.load_generator.http_client import Address, Connection, ConnectionFailure, UrlError, request_bytes
from tests.service.load_generator.raw_server import Asked, http_answer, raw_server


@pytest.mark.parametrize(
    ("url", "address", "written"),
    [
        ("http://host", Address(scheme="http", host="host", port=80, path=""), "http://host"),
        ("http://host:8000/", Address(scheme="http", host="host", port=8000, path=""), "http://host:8000"),
        ("https://host/a/b/", Address(scheme="https", host="host", port=443, path="/a/b"), "https://host/a/b"),
        ("http://[::1]:99", Address(scheme="http", host="::1", port=99, path=""), "http://[::1]:99"),
    ],
)
def test_addresses_are_read_and_written(url: str, address: Address, written: str) -> None:
    assert Address.parse(url) == address
    assert str(address) == written


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://user@host",
        "http://host/?a",
        "http://host/#a",
        "http://host/a b",
        "http://höst",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UrlError, match="URL|http|ASCII|[Pp]ort"):
        Address.parse(url)


def test_a_request_has_what_http_asks_for() -> None:
    address = Address.parse("http://host:99/bert")
    assert request_bytes("POST", address, "embed", json_bytes=b"{}", api_key="k 1") == (
        b"POST /bert/embed HTTP/1.1\r\nhost: host:99\r\nauthorization: Bearer k 1\r\n"
        b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert request_bytes("GET", address, "info") == b"GET /bert/info HTTP/1.1\r\nhost: host:99\r\n\r\n"


async def exchange(url: str, *, count: int, timeout_seconds: float = 10) -> list[tuple[int, bytes, dict[bytes, bytes]]]:
    address = Address.parse(url)
    connection = Connection(address)
    answers = [
        await connection.send(request_bytes("GET", address, f"x{n}"), timeout_seconds=timeout_seconds)
        for n in range(count)
    ]
    connection.close()
    return [(answer.status, bytes(answer.body), answer.headers) for answer in answers]


def test_one_connection_serves_many_requests_and_keeps_the_headers_that_count() -> None:
    def answer(asked: Asked) -> bytes:
        return http_answer(asked.line.encode(), headers={"X-Compute-Tokens": "13", "Server": "any"})

    with raw_server(answer) as server:
        answers = asyncio.run(exchange(server.url, count=3))
    assert answers == [(200, f"GET /x{n} HTTP/1.1".encode(), {b"x-compute-tokens": b"13"}) for n in range(3)]
    assert server.connections == 1


def test_chunked_answers_are_read_whole() -> None:
    chunked = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with raw_server(lambda _: chunked) as server:
        assert asyncio.run(exchange(server.url, count=2)) == [(201, b"abcde", {})] * 2


def test_a_connection_that_the_server_ends_is_made_again() -> None:
    with raw_server(lambda _: http_answer(b"x", headers={"Connection": "close"})) as server:
        assert len(asyncio.run(exchange(server.url, count=3))) == 3
    assert server.connections == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed before the answer"),
        (b"SMTP ready\r\n\r\n", "not an HTTP answer"),
    ],
)
def test_no_answer_is_a_failure(answer: bytes, reason: str) -> None:
    with raw_server(lambda _: answer) as server, pytest.raises(ConnectionFailure, match=reason):
        asyncio.run(exchange(server.url, count=1))


def test_an_answer_that_stops_half_way_is_waited_for_no_longer_than_the_timeout() -> None:
    with raw_server(lambda _: http_answer(b"abcdef")[:-1]) as server, pytest.raises(TimeoutError):
        asyncio.run(exchange(server.url, count=1, timeout_seconds=0.1))


def test_a_port_where_nobody_listens_is_a_failure() -> None:
    with raw_server() as server:
        url = server.url
    with pytest.raises(ConnectionFailure, match="no connection: "):
        asyncio.run(exchange(url, count=1))
