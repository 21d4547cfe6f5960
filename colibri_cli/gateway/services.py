"""What the routes work with: one object, built by `coli serve`, handed to every handler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from colibri_cli.gateway.dialects.responses_store import ResponseStore
from colibri_cli.gateway.statistics import TurnStatistics
from colibri_cli.supervisor.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from colibri_cli.backends.base import Backend
    from colibri_cli.gateway.slots import SlotChooser
    from colibri_cli.supervisor.admission import GenerationScheduler

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Effective settings that shape answers.

    Args:
        model_id: The served name.
        aliases: Other names that mean the served model.
        max_tokens: Cap on generated tokens of one answer; None: the server behind has its own.
        temperature: For requests that name none; None: as the server behind does it.
        top_p: Likewise.
        thinking: Reasoning is on when the client says nothing; None: likewise.
        kv_slots: Independent contexts of the engine; without such, requests that run at once.
        max_queue: Requests that may wait.
        queue_timeout_s: Longest wait.
        keepalive_s: Silence after which a stream gets a sign of life.
        has_visible_keepalive: In chat completions that is a dot of reasoning.
        has_keys: At least one API key is configured.
        shares: What each key may take.
        created: Unix seconds of the server's start.
        dashboard: Directory of the built page, or None.
        atlas: File with the topics of the experts; it need not exist. Or None.
    """

    model_id: str
    aliases: tuple[str, ...] = ()
    max_tokens: int | None = 1024
    temperature: float | None = 0.7
    top_p: float | None = 0.9
    thinking: bool | None = False
    kv_slots: int = 1
    max_queue: int = 8
    queue_timeout_s: float = 300.0
    keepalive_s: float = 10.0
    has_visible_keepalive: bool = False
    has_keys: bool = False
    shares: Shares = field(default_factory=Shares)
    created: int = 0
    dashboard: Path | None = None
    atlas: Path | None = None

    def limited(self, wanted: int | None) -> int | None:
        """Return the tokens an answer may have, of those a request wants; None: no limit here."""
        if wanted is None or self.max_tokens is None:
            return wanted or self.max_tokens
        return min(wanted, self.max_tokens)


@dataclass(slots=True)
class Services:
    """Everything a handler may use."""

    backend: Backend
    scheduler: GenerationScheduler
    slots: SlotChooser
    settings: ServeSettings
    counters: Mapping[str, int] = field(default_factory=dict)
    statistics: TurnStatistics = field(default_factory=TurnStatistics)
    responses: ResponseStore = field(default_factory=ResponseStore)
    running: set[Callable[[Exception], None]] = field(default_factory=set)  # each ends a turn
    waiting: set[asyncio.Future[Exception]] = field(default_factory=set)  # for the engine
    end_error: Exception | None = None  # why nobody is to wait for it any more

    def end_turns(self, error: Exception) -> None:
        """Let every running turn fail with an error, which its client is told."""
        for end in tuple(self.running):
            end(error)

    async def unless_ended(self, engine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for what only a ready engine can tell, but no longer than the server has time.

        Raises:
            Exception: what `end_waiting` was given.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Exception] = loop.create_future()
        if self.end_error is not None:
            told.set_result(self.end_error)
        asking = loop.create_task(engine)
        self.waiting.add(told)
        try:
            either: set[asyncio.Future[Any]] = {told, asking}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise told.result()
        finally:
            self.waiting.discard(told)
            asking.cancel()

    def end_waiting(self, error: Exception) -> None:
        """Let every request that waits for the engine fail with an error."""
        self.end_error = error
        for told in self.waiting:
            if not told.done():
                told.set_result(error)
