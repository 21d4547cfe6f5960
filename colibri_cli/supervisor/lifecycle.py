"""EngineSupervisor: keeps one engine alive, says in which state it is, restarts it after a crash.

    stopped → starting → ready → restarting → ready …
                  └────────┴──────────┴→ failed      any → stopped on `stop`

Back-off between restarts doubles and starts over once an engine has answered a request or lived
for a while; an engine that got ready is always replaced, and only starts that fail one after the
other end in giving up, so that no request can end a server by killing its engine again and again.
Who asks for the engine meanwhile waits, or is told how long that would take. A heartbeat
is sent only to engines that announced it, and an engine is ended for silence only if a limit was
configured: a single step of a large model may take minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import EngineNotReady, EngineStartError
from colibri_cli.supervisor.client import EngineClient
from colibri_cli.supervisor.spawn import EngineLaunch, spawn_engine
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.supervisor.crash_report import CrashReport

logger = logging.getLogger(__name__)


class EngineState(StrEnum):
    """Where the engine is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"


_NEXT: Final = {
    EngineState.STOPPED: {EngineState.STARTING},
    EngineState.STARTING: {EngineState.READY, EngineState.FAILED, EngineState.STOPPED},
    EngineState.READY: {EngineState.RESTARTING, EngineState.FAILED, EngineState.STOPPED},
    EngineState.RESTARTING: {EngineState.READY, EngineState.FAILED, EngineState.STOPPED},
    EngineState.FAILED: {EngineState.STARTING, EngineState.STOPPED},
}


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When and how fast a crashed engine comes back, and when silence counts as a crash.

    Args:
        max_failures: Starts that may fail in a row before giving up; 0 never restarts.
        first_delay_s: Wait before the first restart; doubles each time.
        max_delay_s: Longest wait.
        settled_after_s: An engine that lived this long, or answered, starts the count over.
        patience_s: Longest wait for an engine that is to come back; None: as long as it takes.
        heartbeat_s: Time between heartbeats.
        hang_timeout_s: End an engine that answers no heartbeat for so long; None never.
    """

    max_failures: int = 5
    first_delay_s: float = 0.25
    max_delay_s: float = 30.0
    settled_after_s: float = 60.0
    patience_s: float | None = None
    heartbeat_s: float = 5.0
    hang_timeout_s: float | None = None

    def delay_s(self, failures: int) -> float:
        """Return the wait before the next start after so many failures in a row."""
        return min(self.first_delay_s * 2.0 ** max(failures - 1, 0), self.max_delay_s)


class EngineSupervisor:
    """Starts, watches and restarts one engine.

    Args:
        launch: How to start it.
        policy: Restarts and heartbeat.
        on_state: Called with every new state.
    """

    def __init__(
        self,
        launch: EngineLaunch,
        policy: RestartPolicy | None = None,
        on_state: Callable[[EngineState], None] | None = None,
    ) -> None:
        self._launch = launch
        self._policy = policy or RestartPolicy()
        self._on_state = on_state
        self._state = EngineState.STOPPED
        self._client: EngineClient | None = None
        self._changed = asyncio.Condition()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: ColibriError | None = None
        self._deaths = 0  # in a row, without an answer
        self._due_at: float | None = None  # when the next start begins, or the running one began
        self._load_s = 0.0  # how long the last successful start took
        self.telemetry = Telemetry()
        self.num_crashes = 0
        self.last_crash: CrashReport | None = None

    @property
    def state(self) -> EngineState:
        """The current state; an engine that has ended is not ready, even in that moment."""
        if self._state is EngineState.READY and self._has_lost_engine:
            return EngineState.RESTARTING
        return self._state

    @property
    def ready_in_s(self) -> float | None:
        """Expected seconds until the engine is ready, from its last start; None: never.

        Of a start that takes longer, and of the first, it is expected to take as long again.
        """
        if self._state in {EngineState.FAILED, EngineState.STOPPED}:
            return None
        if self.state is EngineState.READY:
            return 0.0
        now, due_at = time.monotonic(), self._due_at
        if due_at is None:
            due_at = now + self._policy.delay_s(self._deaths_with(self._client))
        return abs(due_at + self._load_s - now)

    @property
    def launch(self) -> EngineLaunch:
        """How the engine is started."""
        return self._launch

    def add_environment(self, **variables: str) -> None:
        """Set further variables for engines started from now on."""
        environment = {**self._launch.environment, **variables}
        self._launch = replace(self._launch, environment=environment)

    @property
    def failure(self) -> ColibriError | None:
        """Why there will be no engine any more, if it was given up."""
        return self._failure

    @property
    def current(self) -> EngineClient | None:
        """The client of the living engine, if one is ready."""
        return self._client

    async def start(self) -> EngineClient:
        """Start the engine and wait until it is ready.

        Raises:
            EngineStartError: it cannot be run or did not get ready.
            EngineCrashed: it ended while loading.
        """
        await self._enter(EngineState.STARTING)
        try:
            client = await self._start_once()
        except ColibriError as error:
            self._failure = error
            await self._enter(EngineState.FAILED)
            raise
        except asyncio.CancelledError:
            await self._enter(EngineState.STOPPED)
            raise
        await self._enter(EngineState.READY, client)
        self._watcher = asyncio.create_task(self._keep_alive(client))
        return client

    async def client(self) -> EngineClient:
        """Return the client of a ready engine, waiting while it is (re)starting.

        Raises:
            EngineNotReady: the engine is stopped, or its return takes longer than the patience.
            ColibriError: why it cannot be started any more.
        """
        if not self._is_settled():
            try:
                async with asyncio.timeout(self._patience_s()), self._changed:
                    await self._changed.wait_for(self._is_settled)
            except TimeoutError:
                raise self._not_back() from None
        if self._state is EngineState.READY and self._client is not None:
            return self._client
        if self._failure is not None:
            raise self._failure
        raise EngineNotReady("the engine is not running")

    async def stop(self) -> None:
        """End the engine and stop watching it. Safe to call twice."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._state is not EngineState.STOPPED:
            await self._enter(EngineState.STOPPED)

    @property
    def _has_lost_engine(self) -> bool:
        return self._client is not None and not self._client.is_alive

    def _patience_s(self) -> float | None:
        """Return how long to wait for the engine, None: without limit.

        Raises:
            EngineNotReady: it is known to take longer.
        """
        limit = self._policy.patience_s
        if limit is None or self.state is not EngineState.RESTARTING:
            return None
        if (self.ready_in_s or 0.0) > limit:
            raise self._not_back()
        return limit

    def _not_back(self) -> EngineNotReady:
        return EngineNotReady("the engine is being restarted", ready_in_s=self.ready_in_s)

    def _deaths_with(self, client: EngineClient | None) -> int:
        """Return how many engines died in a row when the death of this one is counted."""
        return 1 if client is not None and client.num_answers else self._deaths + 1

    def _is_settled(self) -> bool:
        if self._state is EngineState.READY:
            return self._client is not None and self._client.is_alive
        return self._state in {EngineState.FAILED, EngineState.STOPPED}

    async def _enter(self, state: EngineState, client: EngineClient | None = None) -> None:
        assert state in _NEXT[self._state], f"{self._state} -> {state}"
        async with self._changed:
            self._state = state
            if state is EngineState.READY:
                self._due_at = None
            if state is not EngineState.STOPPED:
                self._client = client
            self._changed.notify_all()
        logger.info("engine %s", state.value)
        if self._on_state is not None:
            self._on_state(state)

    async def _start_once(self) -> EngineClient:
        self._due_at = began = time.monotonic()
        client = EngineClient(await spawn_engine(self._launch), self.telemetry)
        try:
            await client.handshake()
        except BaseException:  # cancellation too: no process may be left behind
            await client.close(grace_s=0.5)
            raise
        self._load_s = time.monotonic() - began
        return client

    async def _keep_alive(self, client: EngineClient) -> None:
        while True:
            started = time.monotonic()
            heartbeat = asyncio.create_task(self._heartbeat(client))
            try:
                report = await client.wait_ended()
            finally:
                heartbeat.cancel()
            if time.monotonic() - started >= self._policy.settled_after_s:
                self._deaths = 0
            self._deaths = self._deaths_with(client)
            self.last_crash = report
            self.num_crashes += 1
            self.telemetry.forget_engine()
            logger.info("%s", report.describe())
            restarted = await self._restart(report.to_error())
            if restarted is None:
                return
            client = restarted

    async def _restart(self, error: ColibriError) -> EngineClient | None:
        """Start again until it works or too many starts failed; None is giving up."""
        for failures in range(self._policy.max_failures):
            delay_s = self._policy.delay_s(self._deaths + failures)
            self._due_at = time.monotonic() + delay_s
            if not failures:
                await self._enter(EngineState.RESTARTING)
            await asyncio.sleep(delay_s)
            try:
                client = await self._start_once()
            except ColibriError as start_error:
                error = start_error
                logger.info("restart %d failed: %s", failures + 1, start_error.message)
                if isinstance(start_error, EngineStartError):
                    break  # it said itself why it cannot run; trying again changes nothing
                continue
            await self._enter(EngineState.READY, client)
            return client
        self._failure = error
        await self._enter(EngineState.FAILED)
        return None

    async def _heartbeat(self, client: EngineClient) -> None:
        if Word.PING not in client.caps:
            return
        limit = self._policy.hang_timeout_s
        while True:
            await asyncio.sleep(self._policy.heartbeat_s)
            try:
                await asyncio.wait_for(client.ping(), limit)
            except TimeoutError:
                client.kill(f"it did not answer for {limit:g} s")
                return
            except ColibriError:
                return
