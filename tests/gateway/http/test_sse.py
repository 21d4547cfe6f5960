"""Event streams: encoding, and signs of life that never come at the wrong time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from colibri_cli.gateway.sse import encode_comment, encode_event, with_keepalive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INTERVAL_S = 0.03


def test_encoding() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"a\r\nb\rc\n", event="x", id="7", retry_ms=500) == (
        b"event: x\nid: 7\nretry: 500\ndata: a\ndata: b\ndata: c\ndata: \n\n"
    )
    assert encode_event(b"", event="a\nb") == b"event: a b\ndata: \n\n"
    assert encode_comment("x\ny") == b": x y\n\n"


class Source:
    """Frames with pauses; remembers how it ended."""

    def __init__(self, *steps: float | str) -> None:
        self.steps = steps
        self.end = "never began"
        self.num_sent = 0

    async def frames(self) -> AsyncIterator[bytes]:
        self.end = "runs"
        try:
            for step in self.steps:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    self.num_sent += 1
                    yield step.encode()
            self.end = "finished"
        except BaseException as error:
            self.end = type(error).__name__
            raise


async def gather(
    source: Source, keepalive: list[bytes] | None = None, interval_s: float = INTERVAL_S
) -> list[bytes]:
    pings = [b"ping"] if keepalive is None else keepalive
    return [p async for p in with_keepalive(source.frames(), interval_s, lambda: pings)]


def test_frames_that_are_ready_together_come_together() -> None:
    assert asyncio.run(gather(Source("a", "b", "c"))) == [b"abc"]
    assert asyncio.run(gather(Source())) == []


def test_silence_is_filled_between_frames() -> None:
    pieces = asyncio.run(gather(Source("a", INTERVAL_S * 4, "b", "c")))
    assert pieces[0] == b"a"
    assert pieces[-1] == b"bc"
    assert pieces[1:-1] == [b"ping"] * (len(pieces) - 2)
    assert 1 <= len(pieces) - 2 <= 4


def test_frames_in_time_are_not_interrupted() -> None:
    pieces = asyncio.run(gather(Source("a", 0.01, "b", 0.01, "c"), interval_s=60))
    assert pieces == [b"a", b"b", b"c"]


def test_nothing_to_say_says_nothing() -> None:
    pieces = asyncio.run(gather(Source("a", INTERVAL_S * 3, "b"), keepalive=[]))
    assert pieces == [b"a", b"b"]


def test_nothing_follows_the_end() -> None:
    async def read_late() -> list[bytes]:
        source = Source("a")
        pieces = []
        async for piece in with_keepalive(source.frames(), INTERVAL_S, lambda: [b"ping"]):
            pieces.append(piece)
            await asyncio.sleep(INTERVAL_S * 3)  # a slow client
        return pieces

    assert asyncio.run(read_late()) == [b"a"]


def test_a_failure_comes_after_the_frames_before_it() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"a"
        raise RuntimeError("broke")

    async def read() -> bytes:
        stream = with_keepalive(failing(), INTERVAL_S, list)
        first = await anext(stream)
        with pytest.raises(RuntimeError, match="broke"):
            await anext(stream)
        return first

    assert asyncio.run(read()) == b"a"


def test_a_slow_reader_holds_the_source_up() -> None:
    async def read() -> int:
        source = Source(*["x" * 1000] * 10_000)
        stream = with_keepalive(source.frames(), 10, list)
        await anext(stream)
        await asyncio.sleep(0.01)
        sent = source.num_sent
        await stream.aclose()
        return sent

    assert asyncio.run(read()) < 200


@pytest.mark.parametrize("after", [0, 1, 2])
def test_closing_ends_the_source_wherever_it_stands(after: int) -> None:
    async def read() -> str:
        source = Source("a", 0.01, "b", 30.0)
        stream = with_keepalive(source.frames(), 10, list)
        for _ in range(after):
            await anext(stream)
        if after == 0:
            reading = asyncio.ensure_future(anext(stream))
            reading.cancel()
            await asyncio.wait({reading})
        await stream.aclose()
        return source.end

    end = asyncio.run(read())
    assert end in ({"never began"} if after == 0 else {"CancelledError", "GeneratorExit"})


def test_cancelling_the_reader_ends_the_source() -> None:
    async def read() -> str:
        source = Source("a", 30.0)
        stream = with_keepalive(source.frames(), 10, list)
        assert await anext(stream) == b"a"
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait({reading})
        return source.end

    assert asyncio.run(read()) == "CancelledError"
