"""Who waits for a slot, in the order in which they are asked whether one will do.

Those of a higher priority first, then owners (keys or addresses) in turns, then by arrival: each
request of an owner stands in the round after its latest one, and nobody stands in a round that is
over. Knows neither slots nor times; whoever grants tickets asks it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from colibri_cli.supervisor.admission import Ticket

    # (certainly free slots, whether one must be named) -> one of them, None: the engine's choice
    Pick = Callable[[tuple[int, ...], bool], int | None]


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that has no ticket yet.

    Args:
        peer: Its owner.
        slot: The only slot that will do; None: any.
        pick: Chooses among the certainly free slots.
        arrived: Loop time.
        granted: Gets the ticket, or why there is none.
        priority: Higher ones go first.
        turn: Round in which its owner is served.
        number: Order of arrival; 0: it was not made to wait.
    """

    peer: str
    slot: int | None
    pick: Pick | None
    arrived: float
    granted: asyncio.Future[Ticket]
    priority: int = 0
    turn: int = 0
    number: int = 0


class WaitingLine:
    """All waiters, next first."""

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []
        self._num_of: Counter[str] = Counter()
        self._last_turn: dict[str, int] = {}  # round of the latest waiter of an owner
        self._turn = 0  # the present round
        self._num_arrived = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(tuple(self._waiters))  # those asked may leave meanwhile

    def __contains__(self, waiter: object) -> bool:
        return waiter in self._waiters

    def num_of(self, owner: str) -> int:
        """Return how many requests of an owner wait."""
        return self._num_of[owner]

    def last_behind(self, waiter: Waiter) -> Waiter | None:
        """Return the last in the line if a newcomer's turn would come before its own."""
        if not self._waiters:
            return None
        last = self._waiters[-1]
        is_before = (-waiter.priority, self._turn_of(waiter)) < (-last.priority, last.turn)
        return last if is_before else None

    def join(self, waiter: Waiter) -> None:
        """Put a waiter into the next round of its owner."""
        self._num_arrived += 1
        waiter.number = self._num_arrived
        waiter.turn = self._turn_of(waiter)
        self._last_turn[waiter.peer] = waiter.turn
        self._num_of[waiter.peer] += 1
        insort(self._waiters, waiter, key=lambda w: (-w.priority, w.turn, w.number))

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out."""
        self._waiters.remove(waiter)
        self._num_of[waiter.peer] -= 1
        if not self._num_of[waiter.peer]:
            del self._num_of[waiter.peer]
            self._last_turn.pop(waiter.peer, None)
        elif self._last_turn.get(waiter.peer) == waiter.turn:
            self._last_turn[waiter.peer] -= 1  # who gave up a place does not stand behind it later

    def serve(self, waiter: Waiter) -> None:
        """Take a waiter out that got what it waited for: its round has come."""
        self._turn = max(self._turn, waiter.turn)
        self.leave(waiter)

    def _turn_of(self, waiter: Waiter) -> int:
        return max(self._turn, self._last_turn.get(waiter.peer, 0)) + 1

    def dissolve(self) -> list[Waiter]:
        """Take everybody out and return them."""
        waiters, self._waiters = self._waiters, []
        self._num_of.clear()
        self._last_turn.clear()
        return waiters
