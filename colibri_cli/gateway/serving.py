"""One run of the server: bind, load the engine, serve, drain, end.

The address is taken before the engine is started, so that an occupied port costs nothing, and
requests are answered (with 503) while the engine loads. An engine that dies is started again; when
that fails for good, the run ends with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import SchedulerClosed
from colibri_cli.gateway.listeners import TcpAddress, UnixAddress
from colibri_cli.gateway.router import discover_routes
from colibri_cli.gateway.server import Server, ServerOptions
from colibri_cli.gateway.services import ServeSettings, Services
from colibri_cli.gateway.slots import SlotChooser
from colibri_cli.gateway.status_file import own_status, remove_status, write_status
from colibri_cli.gateway.views import health_view
from colibri_cli.supervisor.admission import GenerationScheduler
from colibri_cli.supervisor.lifecycle import EngineState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from colibri_cli.backends.base import ModelCard, ServableBackend
    from colibri_cli.gateway.http_types import Route
    from colibri_cli.supervisor.telemetry import Telemetry

logger = logging.getLogger(__name__)

# Names by which clients know these families, whatever the model is called here.
_FAMILY_NAMES: Final = {
    "glm_moe_dsa": "glm-5.2-colibri",
    "glm": "glm-5.2-colibri",  # as engines of the baseline are known
    "inkling": "inkling-colibri",
}


@dataclass(frozen=True, slots=True)
class ServePlan:
    """How a run is to be.

    Args:
        options: How the server listens, and whom it serves.
        settings: What shapes answers; an empty model id means the model's own name.
        drain_s: Time for running answers when the run is to end.
        on_bound: Called when the addresses are taken.
        on_ready: Called when the first engine is ready.
        extra_routes: Routes besides our own.
    """

    options: ServerOptions
    settings: ServeSettings
    drain_s: float
    on_bound: Callable[[ServerRun], None]
    on_ready: Callable[[ServerRun, ModelCard], None]
    extra_routes: tuple[Route, ...] = ()


class ServerRun:
    """A server and its engine.

    Args:
        make_backend: Makes the backend, which is not started yet; it is to call the function it
            is given with every new state of its engine.
        plan: How the run is to be.
    """

    def __init__(
        self,
        make_backend: Callable[[Callable[[EngineState], None]], ServableBackend],
        plan: ServePlan,
    ) -> None:
        self._plan = plan
        self._backend = make_backend(self._on_state)
        settings = plan.settings
        if not settings.model_id:
            settings = replace(settings, model_id=self._backend.model_id)
        self.services = Services(
            backend=self._backend,
            scheduler=GenerationScheduler(
                settings.kv_slots, settings.max_queue, settings.queue_timeout_s, settings.shares
            ),
            slots=SlotChooser(settings.kv_slots),
            settings=settings,
        )
        routes = (*discover_routes(), *plan.extra_routes)
        self.server = Server(self.services, plan.options, routes)
        self.services.counters = _ServerFigures(self.server)
        self._status_path: Path | None = None
        self._failed: asyncio.Future[None] | None = None
        self._was_ready = False

    @property
    def rates(self) -> Sequence[float]:
        """Tokens per second of the last answers."""
        return self.services.statistics.recent_rates

    @property
    def telemetry(self) -> Callable[[], Telemetry]:
        """Returns the latest figures of the engine."""
        return self._backend.telemetry

    @property
    def health(self) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        """Returns the object of `/health`."""
        return lambda: health_view(self.services, is_authorized=True)

    @property
    def url(self) -> str:
        """Where it can be reached: the first address."""
        for address in self.server.addresses:
            if isinstance(address, TcpAddress):
                return _reachable(address)
        return str(self.server.addresses[0]) if self.server.addresses else ""

    async def run(self) -> None:
        """Serve until cancelled, then drain.

        Raises:
            ServerStartError: an address cannot be had.
            ColibriError: the engine could not be started, or not again.
        """
        await self.server.bind()
        self._failed = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self.server.serve())
        try:
            self._note_bound()
            await self._until_failure(serving)
        except asyncio.CancelledError:
            await self._drain()
            raise
        finally:
            self.services.scheduler.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await self._backend.close()
            remove_status(self._status_path)

    async def _until_failure(self, serving: asyncio.Task[None]) -> None:
        assert self._failed is not None
        loading = asyncio.create_task(self._load())
        try:
            waits: set[asyncio.Future[None]] = {loading, serving}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                return
            loading.result()
            await asyncio.wait({self._failed, serving}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _load(self) -> None:
        await self._backend.open()
        self._was_ready = True
        card = (await self._backend.models())[0]
        settings = self.services.settings
        if not self._plan.settings.model_id:
            settings = self.services.settings = replace(settings, model_id=card.id)
        alias = _FAMILY_NAMES.get(card.family)
        if alias is not None and alias not in (settings.model_id, *settings.aliases):
            self.services.settings = replace(settings, aliases=(*settings.aliases, alias))
        self._plan.on_ready(self, card)

    async def _drain(self) -> None:
        """Let running answers finish; whoever waits is sent away."""
        self.services.scheduler.close()
        self.services.end_waiting(
            SchedulerClosed("the server is shutting down", retry_after_s=1, hint="try again")
        )
        num_running = self.services.scheduler.active
        if num_running:
            logger.warning(
                "ending: %d running answers get %g s to finish", num_running, self._plan.drain_s
            )
        with contextlib.suppress(asyncio.CancelledError):  # asked again: at once
            await self.server.drain(self._plan.drain_s, self._end_turns)

    def _end_turns(self) -> None:
        message = "the server ended before this answer was complete"
        self.services.end_turns(SchedulerClosed(message, retry_after_s=1, hint="try again"))

    def _note_bound(self) -> None:
        addresses = self.server.addresses
        port = next((a.port for a in addresses if isinstance(a, TcpAddress)), None)
        socket = next((str(a.path) for a in addresses if isinstance(a, UnixAddress)), None)
        if port is not None:
            self._backend.note_port(port)
        status = own_status(self.url, self.services.settings.model_id, socket)
        self._status_path = write_status(status, port)
        self._plan.on_bound(self)

    def _on_state(self, state: EngineState) -> None:
        """Tell about losses, and end when there will be no further engine."""
        if not self._was_ready or state in {EngineState.STOPPED, EngineState.STARTING}:
            return
        if state is EngineState.READY:
            logger.warning("the engine is ready again")
            return
        self.services.slots.forget()
        if state is EngineState.RESTARTING:
            if self._backend.last_end is not None:
                logger.warning("%s", self._backend.last_end)
        elif self._failed is not None and not self._failed.done():
            failure = self._backend.failure
            assert failure is not None, "an engine fails with a reason"
            self._failed.set_exception(failure)


class _ServerFigures(Mapping[str, int]):
    """Counters of the HTTP layer, as they are now."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def _figures(self) -> dict[str, int]:
        statuses = {f"status_{code}": n for code, n in sorted(self._server.answers.items())}
        table = self._server.table
        return {
            **statuses,
            "connections": self._server.num_connections,
            "connections_refused": table.num_refused,
            "connections_evicted": table.num_evicted,
        }

    def __getitem__(self, name: str) -> int:
        return self._figures()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures())

    def __len__(self) -> int:
        return len(self._figures())


def _reachable(address: TcpAddress) -> str:
    """Return a URL clients of this machine can use; "any address" is no address to call."""
    names = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    return str(TcpAddress(names.get(address.host, address.host), address.port))
