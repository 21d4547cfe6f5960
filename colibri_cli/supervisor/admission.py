"""GenerationScheduler: who may generate now, who waits and who is turned away.

As many requests run as the engine has slots; the rest wait in a bounded queue: those of a higher
priority first, then in turns between owners (keys or addresses), then by arrival. A request
that demands a busy slot, or whose owner runs as many as it may, holds up nobody else. Knows slots,
owners and times; knows neither prompts nor HTTP. Runs on one event loop and takes its time from it.

A request may leave the slot to the engine. Until the engine has said which one it took, no slot
counts as certainly free: requests that demand one wait for that word. The other way round, the
engine knows only what it was sent: while a slot is promised to a request that is not with the
engine, before it is sent or between its parts, nobody else leaves the choice to the engine.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import QueueFull, QueueTimeout, RateLimited, SchedulerClosed
from colibri_cli.supervisor.shares import Shares, retry_after_s
from colibri_cli.supervisor.waiting_line import Waiter, WaitingLine

if TYPE_CHECKING:
    from colibri_cli.errors import Overloaded
    from colibri_cli.supervisor.waiting_line import Pick

_SMOOTHING: Final = 0.2  # weight of the latest service time in the mean
_MAX_RETRY_AFTER_S: Final = 600


class Outcome(StrEnum):
    """How an admitted request ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"  # the client left


class Ticket:
    """The right to generate; `release` gives the slot to the next.

    Attributes:
        slot: The slot, or None while the engine has not said which it took.
        is_demanded: No other slot will do.
        is_sent: The engine has been told of it.
        wait_s: Time spent waiting.
        began: Loop time of the admission.
        prompt_tokens: Filled in by whoever runs the request, for views.
        prefilled_tokens: Likewise: prompt tokens that are processed.
        pieces: Likewise: pieces of text so far.
        decode_began: Likewise: loop time of the first of them.
        label: Likewise: what views call the request.
    """

    def __init__(
        self, scheduler: GenerationScheduler, peer: str, slot: int | None, *, is_demanded: bool
    ) -> None:
        self._scheduler = scheduler
        self._is_released = False
        self.peer = peer
        self.slot = slot
        self.is_demanded = is_demanded
        self.is_sent = False
        self.wait_s = 0.0
        self.began = 0.0
        self.prompt_tokens = 0
        self.prefilled_tokens = 0
        self.pieces = 0
        self.decode_began = 0.0
        self.label = ""

    def assign(self, slot: int) -> None:
        """Note which slot the engine took."""
        if self.slot is None and not self._is_released:
            self._scheduler._assign(self, slot)  # noqa: SLF001 - a ticket is a part of it

    def resume(self) -> None:
        """Choose the slot of a further part, whose sending is to be noted too.

        It stays where it is, unless another request has, or may have, taken that slot meanwhile.
        """
        if not self._is_released:
            self._scheduler._resume(self)  # noqa: SLF001 - a ticket is a part of it

    def release(self, outcome: Outcome) -> None:
        """Give the slot back; only the first call counts."""
        if not self._is_released:
            self._is_released = True
            self._scheduler._release(self, outcome)  # noqa: SLF001 - a ticket is a part of it


@dataclass(slots=True)
class AdmissionCounters:
    """Requests since the start; admitted = completed + failed + aborted + active."""

    admitted: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0
    rejected: int = 0
    timed_out: int = 0
    cancelled: int = 0


class GenerationScheduler:
    """Bounded first-come admission to the slots of one engine.

    Args:
        capacity: Number of slots.
        max_queue: Requests that may wait; 0: only what can run at once is taken.
        queue_timeout_s: Longest wait.
        shares: What each owner may take; None: as much as there is.
    """

    def __init__(
        self,
        capacity: int,
        max_queue: int,
        queue_timeout_s: float,
        shares: Shares | None = None,
    ) -> None:
        if capacity < 1 or max_queue < 0 or not queue_timeout_s > 0:
            raise ValueError("capacity >= 1, max_queue >= 0 and queue_timeout_s > 0 are needed")
        self.capacity = capacity
        self.max_queue = max_queue
        self.queue_timeout_s = queue_timeout_s
        self.shares = shares or Shares()
        self.counters = AdmissionCounters()
        self._running: list[Ticket] = []
        self._line = WaitingLine()
        self._is_closed = False
        self._mean_service_s: float | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def active(self) -> int:
        """Requests that run."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._line)

    @property
    def running(self) -> tuple[Ticket, ...]:
        """What runs, oldest first."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[tuple[str, int | None, float], ...]:
        """Address, demanded slot and time of arrival of what waits, next first."""
        return tuple((w.peer, w.slot, w.arrived) for w in self._line)

    @property
    def is_closed(self) -> bool:
        """Whether nobody is admitted any more."""
        return self._is_closed

    @property
    def mean_service_s(self) -> float | None:
        """Smoothed time a request keeps its slot; None before the first has ended."""
        return self._mean_service_s

    async def admit(self, peer: str, slot: int | None = None, pick: Pick | None = None) -> Ticket:
        """Wait for a slot.

        Args:
            peer: Whose request it is: a key or an address; they take turns.
            slot: The only slot that will do; None: any.
            pick: Chooses among the certainly free slots; may return None to leave the choice to
                the engine. Without it the lowest is taken.

        Raises:
            Overloaded: QueueFull, QueueTimeout or SchedulerClosed.
        """
        assert slot is None or 0 <= slot < self.capacity, f"slot {slot}"
        if self._is_closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        if (spent := self._rate_error(peer)) is not None:
            raise self._refused(peer, spent)
        priority = self.shares.of(peer).priority
        waiter = Waiter(peer, slot, pick, loop.time(), loop.create_future(), priority)
        if not any(self._holds_up(earlier) for earlier in self._line) and self._grant(waiter):
            return waiter.granted.result()
        queued = self.shares.of(peer).queued
        if queued is not None and self._line.num_of(peer) >= queued:
            raise self._refused(peer, self._full_for(peer, queued))
        if len(self._line) >= self.max_queue:
            self._make_room(waiter)
        self._line.join(waiter)
        timer = loop.call_at(waiter.arrived + self.queue_timeout_s, self._expire, waiter)
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise
        finally:
            timer.cancel()

    def try_admit(self, peer: str, pick: Pick | None = None) -> Ticket | None:
        """Return a ticket if one can be had at once without passing anybody who waits."""
        if self._is_closed or self._line:
            return None
        loop = asyncio.get_running_loop()
        if self.shares.wait_s(peer, loop.time()) > 0:
            return None
        waiter = Waiter(peer, None, pick, loop.time(), loop.create_future())
        return waiter.granted.result() if self._grant(waiter) else None

    def retry_after_s(self) -> int:
        """Return when it is worth asking again, from measured service times."""
        mean = self._mean_service_s
        if mean is None:
            return 1
        expected = math.ceil(mean * (len(self._line) + 1) / self.capacity)
        return min(max(expected, 1), _MAX_RETRY_AFTER_S)

    def close(self) -> None:
        """Admit nobody any more; who waits is told so."""
        self._is_closed = True
        for waiter in self._line.dissolve():
            if not waiter.granted.done():
                waiter.granted.set_exception(_closed())

    async def wait_idle(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            future = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    # ---- granting ----

    def _holds_up(self, waiter: Waiter) -> bool:
        """Whether later ones must wait: not for who waits for its own slot or its own limit."""
        if self._is_at_limit(waiter.peer):
            return False
        return waiter.slot is None or not self._is_busy(waiter.slot)

    def _is_at_limit(self, peer: str) -> bool:
        limit = self.shares.of(peer).running
        return limit is not None and self.num_running(peer) >= limit

    def num_running(self, peer: str) -> int:
        """Return how many requests of an owner run."""
        return sum(ticket.peer == peer for ticket in self._running)

    def num_waiting(self, peer: str) -> int:
        """Return how many requests of an owner wait."""
        return self._line.num_of(peer)

    def _is_busy(self, slot: int) -> bool:
        return any(ticket.slot == slot for ticket in self._running)

    def _certainly_free(self) -> tuple[int, ...]:
        taken = {ticket.slot for ticket in self._running}
        if None in taken:
            return ()
        return tuple(slot for slot in range(self.capacity) if slot not in taken)

    def _has_promised(self) -> bool:
        """Whether the engine could take a slot that is somebody's.

        Who demanded a slot keeps it between the parts of an answer, when it looks free to the
        engine; there are no undecided requests then, so every other one can name its slot.
        """
        return any(t.slot is not None and (t.is_demanded or not t.is_sent) for t in self._running)

    def _grant(self, waiter: Waiter) -> bool:
        """Admit a waiter if a slot for it is free."""
        if len(self._running) >= self.capacity or self._is_at_limit(waiter.peer):
            return False
        free = self._certainly_free()
        if waiter.slot is not None:
            if waiter.slot not in free:
                return False
            slot: int | None = waiter.slot
        elif waiter.pick is not None:
            slot = waiter.pick(free, self._has_promised())
        else:
            slot = free[0] if free else None
        ticket = Ticket(self, waiter.peer, slot, is_demanded=waiter.slot is not None)
        ticket.began = asyncio.get_running_loop().time()
        ticket.wait_s = ticket.began - waiter.arrived if waiter.number else 0.0
        self._running.append(ticket)
        self.counters.admitted += 1
        if (usage := self.shares.usage.get(waiter.peer)) is not None:
            usage.admitted += 1
            usage.wait_s += ticket.wait_s
        waiter.granted.set_result(ticket)
        return True

    def _admit_waiters(self) -> None:
        for waiter in self._line:
            if waiter.granted.done():  # cancelled, about to leave
                continue
            if (spent := self._rate_error(waiter.peer)) is not None:
                # Its key took its tokens while it waited: a burst would pass the limit otherwise.
                self._line.leave(waiter)
                waiter.granted.set_exception(self._refused(waiter.peer, spent))
            elif self._grant(waiter):
                self._line.serve(waiter)
            elif self._holds_up(waiter):
                return

    def _resume(self, ticket: Ticket) -> None:
        ticket.is_sent = False
        others = {other.slot for other in self._running if other is not ticket}
        if ticket.slot not in others and None not in others:
            return
        ticket.slot = None if None in others else self._certainly_free()[0]
        self._admit_waiters()

    def _assign(self, ticket: Ticket, slot: int) -> None:
        ticket.slot = slot
        ticket.is_sent = True
        self._admit_waiters()

    def _release(self, ticket: Ticket, outcome: Outcome) -> None:
        self._running.remove(ticket)
        counters = self.counters
        setattr(counters, outcome.value, getattr(counters, outcome.value) + 1)
        if outcome is Outcome.COMPLETED:
            spent = asyncio.get_running_loop().time() - ticket.began
            mean = self._mean_service_s
            self._mean_service_s = spent if mean is None else mean + _SMOOTHING * (spent - mean)
        self._admit_waiters()
        if not self._running:
            idle, self._idle = self._idle, []
            for future in idle:
                if not future.done():
                    future.set_result(None)

    # ---- waiting ----

    def _make_room(self, waiter: Waiter) -> None:
        """Refuse whoever would be last: a flood that fills the queue keeps nobody else out."""
        last = self._line.last_behind(waiter)
        if last is None or last.granted.done():
            raise self._refused(waiter.peer, self._full())
        self._line.leave(last)
        last.granted.set_exception(self._refused(last.peer, self._full()))

    def _expire(self, waiter: Waiter) -> None:
        if waiter.granted.done():
            return
        self.counters.timed_out += 1
        self._line.leave(waiter)
        waiter.granted.set_exception(
            QueueTimeout(
                f"the request waited {self.queue_timeout_s:g} s without getting its turn",
                retry_after_s=self.retry_after_s(),
                hint="try again later, or raise --queue-timeout",
            )
        )
        self._admit_waiters()

    def _abandon(self, waiter: Waiter) -> None:
        """Take out a waiter whose client left."""
        if waiter in self._line:
            self.counters.cancelled += 1
            self._line.leave(waiter)
            self._admit_waiters()
            return
        granted = waiter.granted
        if not granted.cancelled() and granted.exception() is None:
            granted.result().release(Outcome.ABORTED)  # admitted in the same moment

    def _rate_error(self, peer: str) -> RateLimited | None:
        """Return why an owner may not begin an answer now, for want of tokens."""
        wait = self.shares.wait_s(peer, asyncio.get_running_loop().time())
        if wait <= 0:
            return None
        limit = self.shares.of(peer).tokens_per_minute
        message = f"the key {peer} has used up its {limit} tokens per minute"
        return RateLimited(message, retry_after_s=retry_after_s(wait), hint="wait")

    def _refused(self, peer: str, error: Overloaded) -> Overloaded:
        """Count a refusal."""
        self.counters.rejected += 1
        if (usage := self.shares.usage.get(peer)) is not None:
            usage.refused += 1
        return error

    def _full_for(self, peer: str, limit: int) -> QueueFull:
        return QueueFull(
            f"{self.num_running(peer)} requests of the key {peer} run and"
            f" {self._line.num_of(peer)} wait, its limit is {limit} waiting",
            retry_after_s=self.retry_after_s(),
            hint="try again later",
        )

    def _full(self) -> QueueFull:
        return QueueFull(
            f"{self.active} of {self.capacity} slots are in use and {self.queued} requests wait,"
            f" the limit is {self.max_queue}",
            retry_after_s=self.retry_after_s(),
            hint="try again later, or raise --max-queue",
        )


def _closed() -> SchedulerClosed:
    return SchedulerClosed("the server is shutting down", retry_after_s=1, hint="try again")
