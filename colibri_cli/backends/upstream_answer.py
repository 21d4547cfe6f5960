"""An answer of a server while it streams: server-sent events in, answer events out.

Tokens and speed are the server's figures where it gives any; times are ours.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx

from colibri_cli.backends import base
from colibri_cli.errors import ServerRefused, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from typing import Self

_PROGRESS: Final = re.compile(r": ?prefill (\d+)/(\d+)")
_FINISH: Final = {"length": "length"}
_MAX_ERROR: Final = 500


class UpstreamAnswer:
    """A running answer.

    Args:
        client: Connections to the server.
        path: Endpoint.
        body: The request.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        path: str,
        body: dict[str, Any],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._url = str(client.base_url).rstrip("/")
        self._path = path
        self._body = body
        self._clock = clock
        self._began = clock()
        self._first_s: float | None = None
        self._num_pieces = 0
        self._usage: dict[str, Any] = {}
        self._finish = "stop"
        self._events: deque[base.AnswerEvent] = deque()
        self._lines: AsyncIterator[str] | None = None
        self._stack = AsyncExitStack()
        self._reading: asyncio.Future[str] | None = None
        self._stopped = asyncio.Event()
        self._is_complete = False
        self._failure: Exception | None = None
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """End the answer here: the server is left, what came so far counts."""
        self._stopped.set()
        self._interrupt()

    def abort(self, error: Exception) -> None:
        """Leave the server; whoever iterates gets `error`."""
        self._failure = error
        self._interrupt()

    def _interrupt(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        if not self.ended.done():
            self.ended.set_result(False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> base.AnswerEvent:
        while not self._events:
            if self._is_complete:
                raise StopAsyncIteration
            await self._advance()
        return self._events.popleft()

    async def _advance(self) -> None:
        try:
            line = await self._next_line()
        except httpx.HTTPError as error:
            raise ServerUnreachable(
                f"the connection to the server at {self._url} was lost",
                hint="send the message once more",
            ) from error
        if line is None:
            self._complete("stopped")
        else:
            self._take(line)

    async def _next_line(self) -> str | None:
        """Return the next line; None when the answer was stopped."""
        if self._stopped.is_set():
            return None
        self._reading = asyncio.ensure_future(self._read_line())
        try:
            return await self._reading
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            if self._stopped.is_set():
                return None
            raise
        finally:
            self._reading = None

    async def _read_line(self) -> str:
        if self._lines is None:
            request = self._client.stream("POST", self._path, json=self._body)
            response = await self._stack.enter_async_context(request)
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise error_of_response(response, self._url)
            self._lines = response.aiter_lines()
            self._events.append(base.Started(0, None))
        line = await anext(self._lines, None)
        if line is None:
            raise ServerUnreachable(
                f"the server at {self._url} ended its answer too early",
                hint="send the message once more",
            )
        return line

    def _take(self, line: str) -> None:
        if (progress := _PROGRESS.match(line)) is not None:
            self._events.append(base.PrefillProgress(int(progress[1]), int(progress[2])))
        if not line.startswith("data:"):
            return
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self._complete(self._finish)
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            return
        if isinstance(chunk, dict):
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        if isinstance(error := chunk.get("error"), dict):
            raise ServerRefused(_shown(error.get("message")), status=500)
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return
        choice = choices[0]
        delta = choice.get("delta") or {"content": choice.get("text")}
        for key, event in (
            ("reasoning_content", base.ReasoningDelta),
            ("content", base.TextDelta),
        ):
            text = delta.get(key)
            if isinstance(text, str) and text:
                self._note_piece()
                self._events.append(event(text))
        if (finish := choice.get("finish_reason")) is not None:
            self._finish = _FINISH.get(finish, "stop")

    def _note_piece(self) -> None:
        self._num_pieces += 1
        if self._first_s is None:
            self._first_s = self._clock() - self._began

    def _complete(self, finish: str) -> None:
        self._is_complete = True
        total = self._clock() - self._began
        tokens = self._usage.get("completion_tokens", self._num_pieces)
        details = self._usage.get("prompt_tokens_details") or {}
        decode_s = total - (self._first_s or 0.0)
        self._events.append(
            base.Completed(
                finish=finish,
                prompt_tokens=self._usage.get("prompt_tokens", 0),
                completion_tokens=tokens,
                reused_tokens=details.get("cached_tokens", 0) or 0,
                tokens_per_second=(tokens - 1) / decode_s if tokens > 1 and decode_s > 0 else 0.0,
                hit_percent=0.0,
                rss_gb=0.0,
                first_token_s=self._first_s,
                total_s=total,
            )
        )


def error_of_response(response: httpx.Response, url: str) -> ServerRefused:
    """Return the error a refusal stands for, in the server's own words."""
    try:
        error = response.json().get("error")
    except (ValueError, AttributeError):
        error = None
    message = error.get("message") if isinstance(error, dict) else None
    hint, retry_after_s = None, None
    if response.status_code == httpx.codes.UNAUTHORIZED:
        hint = "set COLI_API_KEY to the server's key"
    elif response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        seconds = response.headers.get("retry-after", "1")
        hint = f"try again in {_shown(seconds)} s"
        retry_after_s = float(seconds) if seconds.isdecimal() else None
    text = _shown(message) if message else f"{url} answered {response.status_code}"
    return ServerRefused(text, status=response.status_code, hint=hint, retry_after_s=retry_after_s)


def _shown(text: object) -> str:
    """Return a server's text on one line without control characters."""
    line = "".join(c if c.isprintable() else " " for c in str(text)[:_MAX_ERROR])
    return line.strip() or "the server failed"
