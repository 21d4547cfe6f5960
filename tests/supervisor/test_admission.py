"""GenerationScheduler in virtual time: order, limits, pins, fairness, figures."""

from __future__ import annotations

import asyncio
import random
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from colibri_cli.errors import Overloaded, QueueFull, QueueTimeout, SchedulerClosed
from colibri_cli.supervisor.admission import GenerationScheduler, Outcome, Ticket
from tests.fakes.virtual_loop import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def scheduler(
    capacity: int = 1, max_queue: int = 8, timeout_s: float = 300.0
) -> GenerationScheduler:
    return GenerationScheduler(capacity, max_queue, timeout_s)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def leave_to_engine(free: tuple[int, ...], must_name: bool) -> int | None:
    return free[0] if must_name else None


class Requests:
    """Starts requests that hold their slot for a while, and notes who ran when and where."""

    def __init__(self, admission: GenerationScheduler) -> None:
        self.admission = admission
        self.ran: list[str] = []
        self.slots: dict[str, int | None] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def start(
        self, name: str, *, peer: str = "a", slot: int | None = None, seconds: float = 1
    ) -> asyncio.Task[None]:
        async def run() -> None:
            ticket = await self.admission.admit(peer, slot)
            self.ran.append(name)
            self.slots[name] = ticket.slot
            await asyncio.sleep(seconds)
            ticket.release(Outcome.COMPLETED)

        task = asyncio.create_task(run())
        self.tasks.append(task)
        return task

    async def finish(self) -> None:
        await asyncio.gather(*self.tasks)


def in_virtual_time(
    test: Callable[[], Coroutine[None, None, None]],
) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test)

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@in_virtual_time
async def test_requests_run_in_order_of_arrival() -> None:
    requests = Requests(scheduler())
    for name in "abc":
        requests.start(name)
    await settle()
    assert (requests.admission.active, requests.admission.queued) == (1, 2)
    await requests.finish()
    assert requests.ran == ["a", "b", "c"]
    assert requests.admission.counters.completed == 3
    assert requests.admission.counters.admitted == 3


@in_virtual_time
async def test_a_full_queue_refuses_at_once_and_the_rest_is_served_in_order() -> None:
    requests = Requests(scheduler(max_queue=2))
    for name in "abc":
        requests.start(name, seconds=5)
    await settle()
    with pytest.raises(QueueFull, match="2 requests wait") as caught:
        await requests.admission.admit("a")
    assert caught.value.retry_after_s == 1
    await requests.finish()
    assert requests.ran == ["a", "b", "c"]
    assert requests.admission.counters.rejected == 1


@in_virtual_time
async def test_without_a_queue_only_an_idle_slot_is_taken() -> None:
    admission = scheduler(max_queue=0)
    ticket = await admission.admit("a")
    with pytest.raises(QueueFull):
        await admission.admit("a")
    ticket.release(Outcome.COMPLETED)
    (await admission.admit("a")).release(Outcome.COMPLETED)


@in_virtual_time
async def test_a_free_slot_is_given_although_the_queue_is_full_of_waiters_for_another() -> None:
    admission = scheduler(capacity=2, max_queue=1)
    requests = Requests(admission)
    requests.start("a", slot=0)
    requests.start("b", slot=0)
    await settle()
    assert admission.queued == 1
    requests.start("c", slot=1)
    await settle()
    assert requests.ran == ["a", "c"]
    with pytest.raises(QueueFull):
        await admission.admit("a", 0)
    await requests.finish()


@in_virtual_time
async def test_a_pinned_request_to_a_busy_slot_is_refused_without_a_queue() -> None:
    admission = scheduler(capacity=2, max_queue=0)
    await admission.admit("a", 0)
    with pytest.raises(QueueFull):
        await admission.admit("a", 0)
    assert (await admission.admit("a")).slot == 1


@in_virtual_time
async def test_a_waiter_for_a_busy_slot_holds_up_nobody_whose_slot_is_free() -> None:
    requests = Requests(scheduler(capacity=2))
    requests.start("on 0", slot=0, seconds=10)
    requests.start("waits for 0", slot=0)
    requests.start("on 1", slot=1)
    await settle()
    assert requests.ran == ["on 0", "on 1"]
    requests.start("any")
    await settle()
    assert requests.ran == ["on 0", "on 1"]
    await requests.finish()
    assert requests.ran == ["on 0", "on 1", "any", "waits for 0"]


@in_virtual_time
async def test_who_wants_any_slot_is_not_passed_by_a_later_pin() -> None:
    requests = Requests(scheduler(capacity=2))
    requests.start("a", slot=0, seconds=1)
    requests.start("b", slot=1, seconds=2)
    requests.start("any", seconds=5)
    requests.start("pinned", slot=0)
    await requests.finish()
    assert requests.ran == ["a", "b", "any", "pinned"]
    assert requests.slots["any"] == 0


@in_virtual_time
async def test_the_lowest_free_slot_is_taken() -> None:
    admission = scheduler(capacity=3)
    first, second = await admission.admit("a"), await admission.admit("a")
    assert (first.slot, second.slot) == (0, 1)
    first.release(Outcome.COMPLETED)
    assert (await admission.admit("a")).slot == 0


@in_virtual_time
async def test_waiting_too_long_is_refused_and_makes_way() -> None:
    admission = scheduler(timeout_s=3)
    ticket = await admission.admit("a")
    began = asyncio.get_running_loop().time()
    with pytest.raises(QueueTimeout):
        await admission.admit("a")
    assert asyncio.get_running_loop().time() - began == pytest.approx(3)
    assert admission.counters.timed_out == 1
    assert admission.queued == 0
    ticket.release(Outcome.COMPLETED)


@in_virtual_time
async def test_leaving_the_queue_counts_as_cancelled() -> None:
    requests = Requests(scheduler())
    requests.start("a")
    leaver = requests.start("b")
    requests.start("c")
    await settle()
    leaver.cancel()
    await settle()
    assert requests.admission.counters.cancelled == 1
    assert requests.admission.queued == 1
    requests.tasks.remove(leaver)
    await requests.finish()
    assert requests.ran == ["a", "c"]


@in_virtual_time
async def test_who_leaves_in_the_moment_of_admission_gives_the_slot_back() -> None:
    admission = scheduler()
    ticket = await admission.admit("a")
    leaver = asyncio.create_task(admission.admit("a"))
    await settle()
    ticket.release(Outcome.COMPLETED)
    leaver.cancel()
    await settle()
    assert admission.active == 0
    assert admission.counters.aborted == 1


@in_virtual_time
async def test_closing_sends_everybody_away() -> None:
    admission = scheduler()
    ticket = await admission.admit("a")
    waiter = asyncio.create_task(admission.admit("a"))
    await settle()
    admission.close()
    with pytest.raises(SchedulerClosed):
        await waiter
    with pytest.raises(SchedulerClosed):
        await admission.admit("a")
    assert admission.try_admit("a") is None
    idle = asyncio.create_task(admission.wait_idle())
    await settle()
    assert not idle.done()
    ticket.release(Outcome.COMPLETED)
    await idle


@in_virtual_time
async def test_addresses_take_turns() -> None:
    requests = Requests(scheduler())
    requests.start("running", peer="greedy")
    for number in range(3):
        requests.start(f"greedy {number}", peer="greedy")
    requests.start("late", peer="other")
    requests.start("late too", peer="third")
    await requests.finish()
    assert requests.ran == ["running", "greedy 0", "late", "late too", "greedy 1", "greedy 2"]


@in_virtual_time
async def test_an_address_that_comes_again_queues_behind_the_present_round() -> None:
    requests = Requests(scheduler())
    requests.start("x", peer="x")
    for number in range(2):
        requests.start(f"a{number}", peer="a")
        requests.start(f"b{number}", peer="b")
    await asyncio.sleep(2.5)  # a0 and b0 have had their turn
    requests.start("c0", peer="c")
    await requests.finish()
    assert requests.ran == ["x", "a0", "b0", "a1", "b1", "c0"]


@in_virtual_time
async def test_failed_and_aborted_requests_are_counted_as_such_and_only_once() -> None:
    admission = scheduler(capacity=3)
    tickets = [await admission.admit("a") for _ in range(3)]
    for ticket, outcome in zip(tickets, Outcome, strict=True):
        ticket.release(outcome)
        ticket.release(Outcome.COMPLETED)
    counters = asdict(admission.counters)
    assert {n: v for n, v in counters.items() if v} == {
        "admitted": 3, "completed": 1, "failed": 1, "aborted": 1,
    }  # fmt: skip


@in_virtual_time
async def test_when_to_come_back_follows_measured_service_times() -> None:
    admission = scheduler(capacity=2, max_queue=3)
    assert admission.retry_after_s() == 1
    requests = Requests(admission)
    requests.start("a", seconds=40)
    await requests.finish()
    assert admission.retry_after_s() == 20  # one of two slots is free after half of that
    for number in range(5):
        requests.start(f"b{number}", seconds=40)
    await settle()
    assert admission.retry_after_s() == 80
    with pytest.raises(QueueFull) as caught:
        await admission.admit("a")
    assert caught.value.retry_after_s == 80
    await requests.finish()


@in_virtual_time
async def test_nobody_is_pinned_while_the_engine_has_not_said_which_slot_it_took() -> None:
    admission = scheduler(capacity=2)
    open_choice = await admission.admit("a", pick=leave_to_engine)
    assert open_choice.slot is None
    pinned = asyncio.create_task(admission.admit("a", 1))
    await settle()
    assert not pinned.done()
    open_choice.assign(0)
    assert (await pinned).slot == 1


@in_virtual_time
async def test_a_pin_to_the_slot_the_engine_took_waits_for_its_end() -> None:
    admission = scheduler(capacity=2)
    open_choice = await admission.admit("a", pick=leave_to_engine)
    pinned = asyncio.create_task(admission.admit("a", 1))
    await settle()
    open_choice.assign(1)
    await settle()
    assert not pinned.done()
    later = await admission.admit("b", pick=leave_to_engine)  # slot 0 is free
    open_choice.release(Outcome.COMPLETED)
    await settle()
    assert not pinned.done()
    later.assign(0)
    assert (await pinned).slot == 1


@in_virtual_time
async def test_a_continued_answer_stays_in_its_slot() -> None:
    admission = scheduler(capacity=2)
    ticket = await admission.admit("a")
    ticket.is_sent = True
    ticket.resume()
    assert (ticket.slot, ticket.is_sent) == (0, False)


@in_virtual_time
async def test_a_continued_answer_goes_elsewhere_when_the_engine_may_have_given_its_slot_away() -> (
    None
):
    admission = scheduler(capacity=2)
    ticket = await admission.admit("a")
    ticket.is_sent = True
    other = await admission.admit("b", pick=leave_to_engine)
    ticket.resume()
    assert ticket.slot is None
    pinned = asyncio.create_task(admission.admit("a", 0))
    await settle()
    assert not pinned.done()
    other.assign(0)
    ticket.assign(1)
    other.release(Outcome.COMPLETED)
    assert (await pinned).slot == 0


@in_virtual_time
async def test_a_continued_answer_leaves_a_slot_that_another_request_has_got() -> None:
    admission = scheduler(capacity=3)
    ticket = await admission.admit("a")
    ticket.is_sent = True
    other = await admission.admit("b", pick=leave_to_engine)
    other.assign(0)  # the first part had ended, to the engine the slot was free
    ticket.resume()
    assert ticket.slot == 1


@in_virtual_time
async def test_the_engine_is_left_no_choice_while_a_slot_is_promised() -> None:
    admission = scheduler(capacity=4)
    promised = await admission.admit("a")
    assert (await admission.admit("b", pick=leave_to_engine)).slot == 1
    promised.is_sent = True
    demanded = await admission.admit("c", 3)
    demanded.is_sent = True  # but it may come back for a second part
    assert (await admission.admit("d", pick=leave_to_engine)).slot == 2


@in_virtual_time
async def test_a_second_ticket_at_once_never_passes_who_waits() -> None:
    admission = scheduler(capacity=2)
    first = await admission.admit("a")
    second = admission.try_admit("a")
    assert isinstance(second, Ticket)
    waiter = asyncio.create_task(admission.admit("b"))
    await settle()
    assert admission.try_admit("a") is None
    first.release(Outcome.COMPLETED)
    assert (await waiter).slot == 0


def test_impossible_limits_are_refused() -> None:
    for values in ((0, 8, 300.0), (1, -1, 300.0), (1, 8, 0.0)):
        with pytest.raises(ValueError, match="needed"):
            GenerationScheduler(*values)


_PIPE_S = 0.05  # on its way to the engine, and back


class SlotEngine:
    """An engine that knows of slots only what it is sent, a while after that."""

    def __init__(self, num_slots: int, rng: random.Random) -> None:
        self._free = set(range(num_slots))
        self._rng = rng

    async def run(self, ticket: Ticket) -> None:
        """Do one part of an answer."""
        wanted, ticket.is_sent = ticket.slot, True
        await asyncio.sleep(_PIPE_S)
        slot = self._rng.choice(sorted(self._free)) if wanted is None else wanted
        assert slot in self._free, "SLOT_BUSY"
        self._free.remove(slot)
        seconds = self._rng.choice((0.0, 0.01, self._rng.random() * 3))
        ending = asyncio.create_task(self._end(slot, seconds))
        await asyncio.sleep(_PIPE_S)
        ticket.assign(slot)
        await ending

    async def _end(self, slot: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._free.add(slot)
        await asyncio.sleep(_PIPE_S)


@pytest.mark.parametrize("seed", range(40))
def test_random_traffic_never_shares_a_slot_and_the_figures_add_up(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.randint(1, 4)
    admission = scheduler(capacity, max_queue=rng.randint(0, 5), timeout_s=4)
    engine = SlotEngine(capacity, rng)

    async def one() -> None:
        slot = rng.randrange(capacity) if rng.random() < 0.3 else None
        pick = leave_to_engine if slot is None and rng.random() < 0.7 else None
        ticket = await admission.admit(rng.choice("abc"), slot, pick)
        try:
            for part in range(rng.randint(1, 3)):
                if part:
                    ticket.resume()
                await asyncio.sleep(rng.choice((0.0, 0.0, rng.random() / 5)))
                await engine.run(ticket)
                assert slot in {None, ticket.slot}
        finally:
            ticket.release(rng.choice(list(Outcome)))

    async def body() -> None:
        tasks = []
        for _ in range(120):
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(rng.choice((0.0, 0.01, rng.random())))
            assert admission.active <= capacity
            assert admission.queued <= admission.max_queue
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(r is None or isinstance(r, Overloaded) for r in results), results
        counters = admission.counters
        ended = counters.completed + counters.failed + counters.aborted
        assert counters.admitted == ended
        assert ended + counters.rejected + counters.timed_out == 120
        assert (admission.active, admission.queued) == (0, 0)

    run_virtual(body)
