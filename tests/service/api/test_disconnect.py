from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.api.disconnect import CancelOnDisconnect
from tests.service.serving import DISCONNECT, until


async def forever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_disconnect_cancels_the_block_and_what_it_waits_for() -> None:
    async def run() -> None:
        messages = iter([{"type": "http.request", "body": b""}, DISCONNECT])
        inner = asyncio.create_task(forever())

        async def receive() -> Message:
            return next(messages)

        with pytest.raises(ClientDisconnect), CancelOnDisconnect(receive):
            await inner
        assert inner.cancelled()
        await asyncio.sleep(0)  # a cancellation that was left over would strike here

    asyncio.run(run())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def block() -> None:
        with CancelOnDisconnect(forever):
            await forever()

    async def run() -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(0.06)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(run())


def test_a_cancellation_from_elsewhere_is_not_lost_to_a_disconnect() -> None:
    async def block() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def receive() -> Message:
            task.cancel()
            return DISCONNECT

        with CancelOnDisconnect(receive):
            await forever()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(block())


@pytest.mark.parametrize("seconds", [0, 0.07])
def test_a_block_that_ends_leaves_nothing_behind(seconds: float) -> None:
    async def run() -> None:
        with CancelOnDisconnect(forever):
            await asyncio.sleep(seconds)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        await asyncio.sleep(0.06)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_an_error_of_the_block_passes() -> None:
    async def run() -> None:
        with CancelOnDisconnect(forever):
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(run())
