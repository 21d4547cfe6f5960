"""What each key may take: the setting, the bookkeeping, and who is admitted when."""

from __future__ import annotations

import asyncio

import pytest

from colibri_cli.errors import QueueFull, RateLimited
from colibri_cli.supervisor.admission import GenerationScheduler, Outcome, Ticket
from colibri_cli.supervisor.shares import Share, Shares, parse_shares
from colibri_protocol.errors import SettingsError
from tests.fakes.supervised import run_async

NAMES = ("alice", "bob")


def test_a_setting_tells_limits() -> None:
    shares = parse_shares("alice:running=2,priority=5; *:queued=0,tokens_per_minute=60", NAMES)
    assert shares.of("alice") == Share(running=2, priority=5)
    assert shares.of("bob") == Share(queued=0, tokens_per_minute=60)
    assert shares.of("127.0.0.1") == Share()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice", "is not NAME"),
        ("alice:", "is not NAME"),
        ("alcie:running=1", "did you mean alice"),
        ("alice:running=0", "running must be 1 or more, not 0"),
        ("alice:priority=2000", "priority must be -1000..1000, not 2000"),
        ("alice:speed=1", "'speed=1' is none of running, queued"),
        ("alice:running=one", "'running=one' is none of"),
        ("alice:running=9999999999999", "of at most 12 digits"),
        ("alice:running=1;alice:queued=1", "two limits"),
    ],
)
def test_a_wrong_setting_is_named(text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        parse_shares(text, NAMES)


def test_keys_are_owners_where_they_tell_clients_apart() -> None:
    assert Shares(("only",)).owner_of("only", "10.0.0.1") == "10.0.0.1"
    assert Shares(NAMES).owner_of("bob", "10.0.0.1") == "bob"
    assert parse_shares("*:running=1", ("only",)).owner_of("only", "10.0.0.1") == "only"
    assert Shares(NAMES).owner_of(None, "10.0.0.1") == "10.0.0.1"


def test_tokens_come_back_with_time() -> None:
    shares = Shares(NAMES, {"bob": Share(tokens_per_minute=60)})
    assert shares.wait_s("bob", 0) == 0
    shares.note_tokens("bob", 90, 0)  # 30 more than there were
    assert shares.wait_s("bob", 0) == 31
    assert shares.wait_s("bob", 31) == 0
    shares.note_tokens("alice", 10**9, 0)
    assert shares.wait_s("alice", 0) == 0
    assert (shares.usage["bob"].tokens, shares.usage["alice"].tokens) == (90, 10**9)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_key_at_its_limit_waits_and_holds_nobody_up() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(3, 8, 60, parse_shares("alice:running=1", NAMES))
        first = await scheduler.admit("alice")
        second = asyncio.create_task(scheduler.admit("alice"))
        await _settle()
        assert (scheduler.num_running("alice"), scheduler.num_waiting("alice")) == (1, 1)
        other = await scheduler.admit("bob")
        first.release(Outcome.COMPLETED)
        (await second).release(Outcome.COMPLETED)
        other.release(Outcome.COMPLETED)
        assert scheduler.shares.usage["alice"].admitted == 2

    run_async(body)


def test_a_key_may_fill_its_part_of_the_queue_alone() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(1, 8, 60, parse_shares("alice:queued=1", NAMES))
        running = await scheduler.admit("bob")
        waiting = asyncio.create_task(scheduler.admit("alice"))
        await _settle()
        with pytest.raises(QueueFull, match="the key alice"):
            await scheduler.admit("alice")
        other = asyncio.create_task(scheduler.admit("bob"))
        await _settle()
        assert scheduler.queued == 2
        assert scheduler.shares.usage["alice"].refused == 1
        running.release(Outcome.COMPLETED)
        (await waiting).release(Outcome.COMPLETED)
        (await other).release(Outcome.COMPLETED)

    run_async(body)


def test_a_higher_priority_goes_first() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(1, 8, 60, parse_shares("bob:priority=1", NAMES))
        order: list[str] = []

        async def take(owner: str) -> None:
            ticket: Ticket = await scheduler.admit(owner)
            order.append(owner)
            ticket.release(Outcome.COMPLETED)

        running = await scheduler.admit("alice")
        tasks = [asyncio.create_task(take(owner)) for owner in ("alice", "alice", "bob", "bob")]
        await _settle()
        running.release(Outcome.COMPLETED)
        await asyncio.gather(*tasks)
        assert order == ["bob", "bob", "alice", "alice"]

    run_async(body)


def test_a_key_without_tokens_is_told_when_to_come_back() -> None:
    async def body() -> None:
        limits = parse_shares("bob:tokens_per_minute=60", NAMES)
        scheduler = GenerationScheduler(4, 8, 60, limits)
        now = asyncio.get_running_loop().time()
        limits.note_tokens("bob", 120, now)
        with pytest.raises(RateLimited, match="60 tokens per minute") as refused:
            await scheduler.admit("bob")
        assert 50 <= refused.value.retry_after_s <= 61
        assert scheduler.try_admit("bob") is None
        assert scheduler.try_admit("alice") is not None

    run_async(body)


def test_a_burst_that_waits_does_not_pass_the_limit() -> None:
    async def body() -> None:
        limits = parse_shares("bob:tokens_per_minute=60", NAMES)
        scheduler = GenerationScheduler(1, 8, 60, limits)
        first = await scheduler.admit("bob")
        burst = [asyncio.create_task(scheduler.admit("bob")) for _ in range(3)]
        other = asyncio.create_task(scheduler.admit("alice"))
        await _settle()
        limits.note_tokens("bob", 120, asyncio.get_running_loop().time())
        first.release(Outcome.COMPLETED)
        told = await asyncio.gather(*burst, return_exceptions=True)
        assert [type(error) for error in told] == [RateLimited] * 3
        assert (await other).peer == "alice"
        assert (scheduler.queued, scheduler.shares.usage["bob"].refused) == (0, 3)

    run_async(body)


async def _refused(task: asyncio.Task[Ticket]) -> bool:
    await _settle()
    return task.done() and isinstance(task.exception(), QueueFull)


def test_a_flood_that_fills_the_queue_keeps_nobody_else_out() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(1, 4, 60, Shares(NAMES))
        running = await scheduler.admit("alice")
        flood = [asyncio.create_task(scheduler.admit("alice")) for _ in range(63)]
        await _settle()
        assert scheduler.queued == 4
        bobs = [asyncio.create_task(scheduler.admit("bob")) for _ in range(2)]
        assert not await _refused(bobs[0])
        assert not await _refused(bobs[1])
        waiting = [task for task in flood if not task.done()]
        assert (len(waiting), scheduler.queued) == (2, 4)  # half of the queue each
        with pytest.raises(QueueFull):
            await scheduler.admit("bob")
        with pytest.raises(QueueFull):
            await scheduler.admit("alice")
        running.release(Outcome.COMPLETED)
        order = []
        for _ in range(4):
            await _settle()
            (ticket,) = scheduler.running
            order.append(ticket.peer)
            ticket.release(Outcome.COMPLETED)
        assert order == ["alice", "bob", "alice", "bob"]
        assert scheduler.shares.usage["alice"].refused == 62
        await asyncio.gather(*flood, *bobs, return_exceptions=True)

    run_async(body)


def test_a_higher_priority_finds_room_in_a_full_queue() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(1, 1, 60, parse_shares("bob:priority=1", NAMES))
        running = await scheduler.admit("alice")
        low = asyncio.create_task(scheduler.admit("alice"))
        await _settle()
        high = asyncio.create_task(scheduler.admit("bob"))
        assert await _refused(low)
        with pytest.raises(QueueFull):  # not the other way round
            await scheduler.admit("alice")
        running.release(Outcome.COMPLETED)
        (await high).release(Outcome.COMPLETED)

    run_async(body)


def test_a_place_that_was_given_up_does_not_count_against_its_owner() -> None:
    async def body() -> None:
        scheduler = GenerationScheduler(1, 8, 60, Shares(NAMES))
        running = await scheduler.admit("alice")
        first = asyncio.create_task(scheduler.admit("alice"))
        gone = [asyncio.create_task(scheduler.admit("alice")) for _ in range(5)]
        await _settle()
        for task in reversed(gone):
            task.cancel()
            await _settle()
        later = [asyncio.create_task(scheduler.admit(owner)) for owner in ("alice", "bob", "bob")]
        await _settle()
        assert [peer for peer, _, _ in scheduler.waiting] == ["alice", "bob", "alice", "bob"]
        running.release(Outcome.COMPLETED)
        for task in (first, later[1], later[0], later[2]):
            (await task).release(Outcome.COMPLETED)

    run_async(body)
