"""The upstream server a gateway stands in front of: watched, awaited, and back when it comes back.

    stopped → starting → ready ⇄ restarting      any → stopped on `close`

It is looked at twice a second, and at once when a request lost its connection. Starting waits for
as long as nothing answers, because servers of large models take minutes; an answer that will not
change by waiting (a wrong key, another model) ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import httpx

from colibri_cli.backends.base import Health
from colibri_cli.backends.upstreams.backend import UpstreamBackend
from colibri_cli.backends.upstreams.metrics import MetricsReader
from colibri_cli.errors import EngineNotReady, ServerRefused, ServerUnreachable, UsageError
from colibri_cli.supervisor.lifecycle import EngineState

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.base import ModelCard
    from colibri_cli.backends.upstreams.kinds import UpstreamKind
    from colibri_protocol.errors import ColibriError

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_CHECK_S: Final = 5.0
_MAX_SILENT: Final = 3  # checks in a row: a server full of work may be slow to say it is well
_CHECKS_PER_PAGE: Final = 4  # pages of metrics are long
_NO_ROUTE: Final = {
    httpx.codes.NOT_FOUND,
    httpx.codes.METHOD_NOT_ALLOWED,
    httpx.codes.NOT_IMPLEMENTED,
}


@dataclass(frozen=True, slots=True)
class UpstreamTarget:
    """Which server, and what of it.

    Args:
        url: Its root, with or without `/v1`.
        api_key: Key to show, or None.
        kind: What it is; None: found out.
        model: One of its models; None: the first.
    """

    url: str
    api_key: str | None = None
    kind: UpstreamKind | None = None
    model: str | None = None


class ServedUpstream(UpstreamBackend):
    """Answers from a server that may go and come back.

    Args:
        target: Which server.
        on_state: Called with every new state.
        transport: How to reach it; None: the network.
    """

    def __init__(
        self,
        target: UpstreamTarget,
        on_state: Callable[[EngineState], None] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(target.url, target.api_key, transport, target.kind)
        self._wanted = target.model
        self._on_state = on_state
        self._state = EngineState.STOPPED
        self._watcher: asyncio.Task[None] | None = None
        self._suspicion = asyncio.Event()
        self._health_path = "/health"
        self._reader: MetricsReader | None = None
        self._num_checks = 0
        self._num_silent = 0
        self._num_losses = 0
        self._problem: str | None = None  # the latest, for as long as there is one
        self._end: str | None = None  # how it was lost last

    @property
    def model_id(self) -> str:
        """Name of the served model; before it is known, what is waited for."""
        return self._card.id if self._card is not None else self._wanted or self.url

    @property
    def last_end(self) -> str | None:
        """How the server was lost last."""
        return None if self._end is None else f"{self._end}; waiting for the server"

    @property
    def failure(self) -> ColibriError | None:
        """Nothing is final: the server may come back."""
        return None

    def note_port(self, port: int) -> None:
        """Do nothing: the server does not need to know."""

    async def open(self) -> None:
        """Wait until the server answers, and begin to watch it.

        Raises:
            ServerRefused: it does, and wants nothing of us.
            UsageError: it has not the model.
        """
        self._enter(EngineState.STARTING)
        while (problem := await self._first_look()) is not None:
            if problem != self._problem:
                self._tell_wait(problem)
            self._problem = problem
            await asyncio.sleep(_POLL_S)
        self._problem = None
        self._enter(EngineState.READY)
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching and close the connections; the server goes on."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        if self._state is not EngineState.STOPPED:
            self._enter(EngineState.STOPPED)
        await super().close()

    async def models(self) -> list[ModelCard]:
        """Return the served model.

        Raises:
            EngineNotReady: the server does not answer at the moment.
        """
        if self._state is not EngineState.READY or self._card is None:
            raise EngineNotReady("the upstream server does not answer", ready_in_s=_POLL_S)
        return [self._card]

    async def health(self) -> Health:
        """Return the state of the last look."""
        is_coming = self._state in {EngineState.STARTING, EngineState.RESTARTING}
        ready_in_s = _POLL_S if is_coming else None
        return Health(self._state.value, self._num_losses, self._end, ready_in_s)

    def _tell_wait(self, problem: str) -> None:
        logger.warning("%s; waiting for it", problem)

    def _note_lost(self) -> None:
        self._suspicion.set()

    async def _first_look(self) -> str | None:
        """Return why the server is not there yet, or None if it is."""
        try:
            async with asyncio.timeout(_CHECK_S):
                await self._recognise()
        except ServerUnreachable as error:
            return error.message
        except ServerRefused as error:
            if error.status >= 500 or error.status == httpx.codes.TOO_MANY_REQUESTS:
                return error.message
            error.hint = "set COLI_UPSTREAM_API_KEY to a key it takes"
            raise
        except (OSError, ValueError, httpx.HTTPError) as error:  # a timeout is an OSError
            reason = str(error) or "it is silent"
            return f"no server answers at {self.url} ({reason})"
        return None

    async def _recognise(self) -> None:
        """Find out what is served; the model stays the one it was.

        Raises:
            UsageError: it has another one.
        """
        await self._probe()
        if self._wanted is not None:
            self.use(self._wanted)
        assert self._card is not None, "the probe found it"
        self._wanted = self._card.id
        self._card = replace(self._card, has_slots=False)
        self._health_path = "/health"
        self._reader = MetricsReader(self._kind.metrics)
        self._num_checks = self._num_silent = 0

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._suspicion.wait(), _POLL_S)
            self._suspicion.clear()
            self._note(await self._problem_now())

    async def _problem_now(self) -> str | None:
        """Return what is wrong with the server at this moment."""
        try:
            async with asyncio.timeout(_CHECK_S):
                if self._state is not EngineState.READY:
                    await self._recognise()
                else:
                    await self._look()
        except (TimeoutError, httpx.TimeoutException):
            self._num_silent += 1
            if self._state is EngineState.READY and self._num_silent < _MAX_SILENT:
                return None
            return f"the upstream server at {self.url} is silent"
        except (OSError, ValueError, httpx.HTTPError) as error:
            return f"the upstream server at {self.url} does not answer ({str(error) or 'gone'})"
        except (ServerUnreachable, ServerRefused, UsageError) as error:
            return error.message
        return None

    async def _look(self) -> None:
        """Ask how it is, and now and then for its figures."""
        response = await self._client.get(self._health_path)
        if response.status_code in _NO_ROUTE and self._health_path != "/v1/models":
            self._health_path = "/v1/models"
            response = await self._client.get(self._health_path)
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise ServerUnreachable(
                f"the upstream server at {self.url} answers {response.status_code}"
            )
        self._num_silent = 0
        if self._reader is not None and self._num_checks % _CHECKS_PER_PAGE == 0:
            await self._read_figures(self._reader)
        self._num_checks += 1

    async def _read_figures(self, reader: MetricsReader) -> None:
        response = await self._client.get("/metrics")
        if response.status_code != httpx.codes.OK:
            self._reader = None  # it has none, or not for us
            return
        self._telemetry.upstream = reader.read(response.text, time.monotonic())

    def _note(self, problem: str | None) -> None:
        if problem is None:
            self._problem = None
            if self._state is EngineState.RESTARTING:
                self._enter(EngineState.READY)
            return
        is_new, self._problem = problem != self._problem, problem
        if self._state is EngineState.READY:
            self._num_losses += 1
            self._end = problem
            self._telemetry.upstream = None
            self._enter(EngineState.RESTARTING)
        elif is_new:
            self._tell_wait(problem)

    def _enter(self, state: EngineState) -> None:
        self._state = state
        if self._on_state is not None:
            self._on_state(state)
