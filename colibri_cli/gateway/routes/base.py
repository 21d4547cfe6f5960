"""From a parsed request to its response: what all generating endpoints share.

Until the turn is accepted every failure is an ordinary response. After that a stream ends either
as its dialect ends streams, or with the dialect's error event; it never looks finished when it
broke. A stream gets a sign of life whenever nothing was written for a while.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from colibri_cli.errors import EngineNotReady
from colibri_cli.gateway.dialects.base import (
    Dialect,
    ParsedRequest,
    Served,
    collect,
    parse_object,
)
from colibri_cli.gateway.generation import run_turn
from colibri_cli.gateway.http_types import HttpError, StreamingResponse, json_response
from colibri_cli.gateway.problems import http_error_of
from colibri_cli.gateway.sse import with_keepalive
from colibri_cli.gateway.turn_options import demands_of
from colibri_cli.gateway.turns import TurnAccepted, TurnCompleted
from colibri_cli.long_work import run_work
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from colibri_cli.gateway.dialects.base import StreamRenderer
    from colibri_cli.gateway.http_types import AnyResponse, Request, Response
    from colibri_cli.gateway.services import Services
    from colibri_cli.gateway.turns import TurnEvent, TurnRequest

Parsed = TypeVar("Parsed")
RenderT = TypeVar("RenderT")

_QUEUE_WAIT: Final = "x-colibri-queue-wait-ms"
# Without both, requests go out in the form of the baseline, which has no options.
_EXTENDED: Final = frozenset({Word.OPTIONS, Word.SEGMENTS})


async def read_body(request: Request) -> dict[str, Any]:
    """Return the body, a JSON object.

    Raises:
        HttpError: 400, it is none.
    """
    return await run_work(len(request.body), partial(parse_object, request.body))


async def checked(request: Request, parse: Callable[[], Parsed]) -> Parsed:
    """Return what a dialect makes of the body, which it may take long to check.

    Raises:
        HttpError: the body cannot be honoured.
    """
    return await run_work(len(request.body), parse)


async def served_model(services: Services) -> Served:
    """Return what requests are checked against; waits while the engine restarts.

    Raises:
        EngineNotReady: it is still loading for the first time.
    """
    health = await services.backend.health()
    if health.state == "starting":
        raise EngineNotReady("the model is being loaded", ready_in_s=health.ready_in_s)
    models = services.backend.models()
    card = (await (models if health.state == "ready" else services.unless_ended(models)))[0]
    is_extended = card.capabilities >= _EXTENDED
    return Served(
        settings=services.settings,
        words=card.capabilities if is_extended else frozenset(),
        family=card.family,
        context_length=card.context_length,
        can_think=card.can_think,
    )


async def answer(
    services: Services,
    request: Request,
    parsed: ParsedRequest[RenderT],
    dialect: Dialect[RenderT],
) -> AnyResponse:
    """Run a turn and return its response, whole or streamed.

    Raises:
        HttpError: refused before anything was sent.
        ColibriError: likewise.
    """
    if not parsed.is_stream:
        async with run_turn(services, parsed.turn, request) as events:
            whole = await collect(events, parsed.turn.num_choices)
        wait = whole.accepted.queue_wait_ms if whole.accepted is not None else 0

        def written() -> Response:
            body = dialect.render_whole(parsed, whole)
            return json_response(200, body, {_QUEUE_WAIT: str(wait)})

        return await run_work(whole.num_bytes, written)
    streamed = StreamedTurn(dialect.open_stream(parsed))
    frames = streamed.frames(services, request, parsed.turn)
    stream = with_keepalive(frames, services.settings.keepalive_s, streamed.keepalive)
    first = await anext(stream)  # raises what keeps the turn from being accepted
    headers = {_QUEUE_WAIT: str(streamed.queue_wait_ms)}
    return StreamingResponse(_Begun(first, stream), headers=headers)


async def count_tokens(services: Services, turn: TurnRequest) -> int:
    """Return the number of tokens of a turn's prompt.

    Raises:
        CapabilityMissing: the engine cannot count.
    """
    backend = services.backend
    conversation = demands_of(turn, (await backend.models())[0]).conversation
    if conversation is not None:
        return await backend.count(conversation)
    return await backend.count_text(turn.prompt or "")


class StreamedTurn:
    """The frames of a turn as its dialect writes them."""

    def __init__(self, renderer: StreamRenderer) -> None:
        self.queue_wait_ms = 0
        self._renderer = renderer
        self._is_begun = False
        self._is_over = False
        self._is_writing = False  # in a thread: the renderer is not to be asked
        self._num_bytes = 0

    async def frames(
        self, services: Services, request: Request, turn: TurnRequest
    ) -> AsyncIterator[bytes]:
        """Run the turn; a failure after it was accepted becomes the dialect's error event.

        Raises:
            HttpError: it was not accepted.
            ColibriError: likewise.
        """
        try:
            async with run_turn(services, turn, request) as events:
                async for event in events:
                    if isinstance(event, TurnCompleted):
                        frames = await self._end_of_choice(event)
                    else:
                        frames = b"".join(self._frames_of(event))
                    self._num_bytes += len(frames)
                    if frames:
                        yield frames
            last = self._renderer.end()
        except (HttpError, ColibriError) as error:
            if not self._is_begun:
                raise  # still an ordinary response
            known = error if isinstance(error, HttpError) else http_error_of(error)
            last = self._renderer.fail(known)
        self._is_over = True
        yield b"".join(last)

    def keepalive(self) -> list[bytes]:
        """Return a sign of life, between the first and the last frame."""
        is_free = self._is_begun and not self._is_over and not self._is_writing
        return self._renderer.keepalive() if is_free else []

    async def _end_of_choice(self, event: TurnEvent) -> bytes:
        """Return the frames of a choice's end; some dialects repeat in them all they sent."""
        self._is_writing = True
        try:
            return b"".join(await run_work(self._num_bytes, partial(self._frames_of, event)))
        finally:
            self._is_writing = False

    def _frames_of(self, event: TurnEvent) -> list[bytes]:
        if self._is_begun:
            return self._renderer.feed(event)
        self._is_begun = True
        if isinstance(event, TurnAccepted):
            self.queue_wait_ms = event.queue_wait_ms
        return [*self._renderer.begin(), *self._renderer.feed(event)]


class _Begun:
    """A stream whose first piece was taken already; closing it reaches the source in any case."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes]) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, None
        return await anext(self._rest) if first is None else first

    async def aclose(self) -> None:
        """End the turn, wherever it stands."""
        close = getattr(self._rest, "aclose", None)
        if close is not None:
            await close()
