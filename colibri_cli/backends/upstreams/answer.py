"""An answer of a server while it streams: server-sent events in, answer events out.

Events are made of each piece as the network hands it over, and nothing is read before the events
of the last piece were taken: a client that is slow slows the server down. Tokens and speed are the
server's figures where it gives any; times are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httpx

from colibri_cli.backends import base
from colibri_cli.backends.upstreams.calls import CallPieces
from colibri_cli.backends.upstreams.errors import error_of_body, error_of_response, lost, no_answer
from colibri_cli.backends.upstreams.logprobs import logprobs_of
from colibri_cli.errors import ServerRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from typing import Self

_PROGRESS: Final = re.compile(rb": ?prefill (\d+)/(\d+)")
_END_S: Final = 0.2  # the end of a stream comes with its last event, or hardly later
_MAX_LINE: Final = 16 * 1024 * 1024
# Ends that are the model's or ours; anything else is no answer.
_FINISH: Final = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
}


class UpstreamAnswer:
    """A running answer.

    Args:
        client: Connections to the server.
        request: What is sent.
        clock: Seconds that only grow.
        stop_field: Where a choice tells which stop text ended it, or None.
        on_lost: Called when the connection failed.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        request: httpx.Request,
        clock: Callable[[], float],
        stop_field: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._request = request
        self._clock = clock
        self._stop_field = stop_field
        self._on_lost = on_lost
        self._began = clock()
        self._first_s: float | None = None
        self._last_s = 0.0
        self._num_pieces = 0
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._stop_text: str | None = None
        self._is_call_cut = False
        self._calls = CallPieces()
        self._events: deque[base.AnswerEvent] = deque()
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._rest = b""
        self._waiting: asyncio.Timeout | None = None
        self._is_stopped = False
        self._is_complete = False
        self._failure: Exception | None = None
        self._closing: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[bool] = self._loop.create_future()

    def stop(self) -> None:
        """End the answer here: the server is left, what came so far counts."""
        self._is_stopped = True
        self._interrupt()

    def abort(self, error: Exception) -> None:
        """Leave the server; whoever iterates gets `error`."""
        self._failure = error
        self._interrupt()

    def _interrupt(self) -> None:
        if self._waiting is not None:
            self._waiting.reschedule(self._loop.time())
            self._waiting = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # In a task of its own: whoever leaves may be cancelled, and httpx does not finish closing a
        # connection when that interrupts it, so that the server would go on working.
        self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        """Leave the server, which then stops working on the answer."""
        try:
            if self._response is not None:
                await self._response.aclose()
        finally:
            self._note_end(was_made=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> base.AnswerEvent:
        while not self._events:
            if self._is_complete:
                await self._read_to_end()
                self._note_end(was_made=True)
                raise StopAsyncIteration
            await self._advance()
        return self._events.popleft()

    async def _read_to_end(self) -> None:
        """Take what follows the last event, so that the connection can be used again."""
        if self._pieces is None or self._is_stopped:
            return
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_END_S):
                async for _ in self._pieces:
                    pass

    def _note_end(self, *, was_made: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(was_made)

    async def _advance(self) -> None:
        """Wait for the next piece and take it; a stop is a normal end."""
        if self._is_interrupted():
            return
        try:
            # A time limit that an interruption sets: a task for every piece would cost far more.
            async with asyncio.timeout(None) as self._waiting:
                piece = await self._read()
        except TimeoutError:
            if self._is_interrupted():
                return
            raise
        except httpx.HTTPError as error:
            if self._on_lost is not None:
                self._on_lost()
            raise lost(self._request.url, error) from error
        finally:
            self._waiting = None
        if piece is None:
            self._end_of_stream()
        else:
            self._feed(piece)

    def _is_interrupted(self) -> bool:
        """Whether the answer was stopped, which is then told; an abort is raised."""
        if self._failure is not None:
            raise self._failure
        if self._is_stopped:
            self._complete("stopped")
        return self._is_stopped

    async def _read(self) -> bytes | None:
        if self._pieces is None:
            await self._open()
            return b""
        return await anext(self._pieces, None)

    async def _open(self) -> None:
        """Send the request; a refusal is an error of its own."""
        self._response = response = await self._client.send(self._request, stream=True)
        if response.status_code != httpx.codes.OK:
            await response.aread()
            raise error_of_response(response)
        self._pieces = response.aiter_raw()
        self._events.append(base.Started(0, None))

    def _end_of_stream(self) -> None:
        if self._finish is None:
            raise no_answer(self._request.url, "ended its answer too early")
        self._complete(self._finish)  # some servers leave out the mark at the end

    def _feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            raise no_answer(self._request.url, f"sent a line of more than {_MAX_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip())
            elif line.startswith((b"error:", b"{")):  # outside the form of events
                self._take(line.removeprefix(b"error:").strip())
            elif (progress := _PROGRESS.match(line)) is not None:
                self._events.append(base.PrefillProgress(int(progress[1]), int(progress[2])))

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._end_of_stream()
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            raise no_answer(self._request.url, "sent an event that is not JSON") from None
        if not isinstance(chunk, dict) or self._is_complete:
            return
        if (error := chunk.get("error")) is not None:
            raise error_of_body(error, 500)
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._take_choice(choices[0])

    def _take_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        # vLLM says `reasoning`, all others `reasoning_content`
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            self._note_piece()
            self._events.append(base.ReasoningDelta(reasoning))
        text = delta.get("content")
        logprobs = logprobs_of(choice.get("logprobs")) if choice.get("logprobs") else ()
        if isinstance(text, str) and (text or logprobs):
            self._note_piece()
            self._events.append(base.TextDelta(text, logprobs))
        if calls := delta.get("tool_calls"):
            self._note_piece()
            self._events += self._calls.feed(calls)
        if (finish := choice.get("finish_reason")) is not None:
            self._note_finish(finish, choice)

    def _note_finish(self, finish: object, choice: dict[str, Any]) -> None:
        if not isinstance(finish, str) or finish not in _FINISH:
            raise ServerRefused(f"the server ended the answer: {str(finish)[:100]}", status=502)
        self._finish = _FINISH[finish]
        if self._stop_field is not None and isinstance(choice.get(self._stop_field), str):
            self._stop_text = choice[self._stop_field]
        ends, self._is_call_cut = self._calls.finish(was_cut=finish == "length")
        self._events += ends

    def _note_piece(self) -> None:
        self._num_pieces += 1
        self._last_s = self._clock() - self._began
        if self._first_s is None:
            self._first_s = self._last_s

    def _complete(self, finish: str) -> None:
        if self._is_complete:
            return
        self._is_complete = True
        usage = self._usage
        tokens = _count(usage, "completion_tokens", self._num_pieces)
        decode_s = self._last_s - (self._first_s or 0.0)
        self._events.append(
            base.Completed(
                finish=finish,
                prompt_tokens=_count(usage, "prompt_tokens"),
                completion_tokens=tokens,
                reused_tokens=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
                tokens_per_second=(tokens - 1) / decode_s if tokens > 1 and decode_s > 0 else 0.0,
                hit_percent=0.0,
                rss_gb=0.0,
                first_token_s=self._first_s,
                total_s=self._clock() - self._began,
                stop_text=self._stop_text,
                reasoning_tokens=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
                is_call_cut=self._is_call_cut,
            )
        )


def _count(counts: object, name: str, default: int = 0) -> int:
    """Return a number of tokens, if the server gave one."""
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and value >= 0 else default
