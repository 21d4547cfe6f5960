"""A turn against the scripted engine: slots, stops, limits, leaving clients, dying engines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.errors import QueueFull, QueueTimeout
from colibri_cli.gateway.generation import run_turn
from colibri_cli.gateway.http_types import ClientGone, HttpError
from colibri_cli.gateway.turns import (
    Finish,
    ResponseFormat,
    TextPiece,
    TurnAccepted,
    TurnCompleted,
    TurnEvent,
    TurnProgress,
)
from colibri_protocol.errors import ColibriError, ContextLengthExceeded
from colibri_protocol.messages import RequestOptions
from tests.fakes.supervised import run_async
from tests.gateway.turn_rig import (
    THINKING_MODEL,
    Client,
    chat,
    end_of,
    events_of,
    follow,
    reasoning_of,
    serving,
    text_of,
)

if TYPE_CHECKING:
    from colibri_cli.gateway.services import Services
    from colibri_cli.supervisor.spawn import EngineLaunch


async def all_free(services: Services) -> None:
    """Wait until no slot is in use, as the scheduler sees it."""
    await asyncio.wait_for(services.scheduler.wait_idle(), 5)


def test_a_turn_is_accepted_then_answered_then_complete(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            events = await events_of(services, chat("[[pieces Hé|llo]]"))
            accepted = events[0]
            assert isinstance(accepted, TurnAccepted)
            assert accepted.slot is not None
            assert accepted.queue_wait_ms == 0
            assert any(isinstance(event, TurnProgress) for event in events)
            assert text_of(events) == "Héllo"
            end = end_of(events)
            assert end.finish is Finish.STOP
            assert end.usage.prompt_tokens == accepted.prompt_tokens
            assert end.usage.completion_tokens == 2
            await all_free(services)
            assert services.scheduler.counters.completed == 1
            assert services.statistics.completion_tokens == 2

    run_async(body)


def test_a_plain_completion_gets_the_prompt_as_it_is(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = replace(chat("x"), conversation=None, prompt="Complete me [[prompt]]")
            assert text_of(await events_of(services, turn)) == "Complete me [[prompt]]"

    run_async(body)


@pytest.mark.parametrize(("limit", "finish"), [(4, Finish.LENGTH), (6, Finish.STOP)])
def test_the_reason_of_the_end_is_the_true_one(
    launch: EngineLaunch, limit: int, finish: Finish
) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = chat("[[tokens 5]]", options=RequestOptions(max_tokens=limit))
            assert end_of(await events_of(services, turn)).finish is finish

    run_async(body)


def test_a_stop_text_split_over_pieces_is_never_shown(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = chat("[[pieces L M N| O| P| Q| R]]", stop=("O P Q",))
            events = await events_of(services, turn)
            assert text_of(events) == "L M N "
            assert end_of(events).finish is Finish.STOP_SEQUENCE
            assert end_of(events).stop_text == "O P Q"

    run_async(body)


def test_a_leading_stop_text_is_skipped_when_asked_for(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = chat("[[pieces Hé|llo]]", stop=("H",), ignore_leading_stop=True)
            events = await events_of(services, turn)
            assert text_of(events) == "éllo"
            assert end_of(events).finish is Finish.STOP

    run_async(body)


def test_two_turns_at_once_get_their_own_text(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=2) as services:
            one, two = await asyncio.gather(
                events_of(services, chat("[[pieces a|b|c]] [[slow 0.01]]")),
                events_of(services, chat("[[pieces x|y|z]] [[slow 0.01]]")),
            )
            assert (text_of(one), text_of(two)) == ("abc", "xyz")
            assert isinstance(one[0], TurnAccepted)
            assert isinstance(two[0], TurnAccepted)
            assert {one[0].slot, two[0].slot} == {0, 1}

    run_async(body)


def test_a_demanded_slot_is_used(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            events = await events_of(services, chat("hi", cache_slot=3))
            assert isinstance(events[0], TurnAccepted)
            assert events[0].slot == 3

    run_async(body)


def test_a_conversation_comes_back_to_its_slot(launch: EngineLaunch) -> None:
    def turn(opening: str, *later: str) -> Conversation:
        messages = [ChatMessage("user", opening)]
        for text in later:
            messages += [ChatMessage("assistant", "ok"), ChatMessage("user", text)]
        return Conversation(tuple(messages))

    async def body() -> None:
        async with serving(launch, num_slots=3) as services:

            async def slot_of(conversation: Conversation, *, seconds: float = 0) -> int | None:
                text = replace(conversation.messages[-1])
                assert seconds == 0 or "slow" in text.content
                events = await events_of(services, replace(chat("x"), conversation=conversation))
                assert isinstance(events[0], TurnAccepted)
                return events[0].slot

            busy = asyncio.create_task(slot_of(turn("[[pieces A|.]] [[slow 0.2]]"), seconds=1))
            await asyncio.sleep(0.1)
            second = await slot_of(turn("B"))
            first = await busy
            assert {first, second} == {0, 1}
            assert await slot_of(turn("B", "b2")) == second
            assert await slot_of(turn("[[pieces A|.]] [[slow 0.2]]", "a2")) == first
            assert await slot_of(turn("B", "b2", "b3")) == second

    run_async(body)


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_sent(
    launch: EngineLaunch,
) -> None:
    async def body() -> None:
        async with serving(launch, context_length=20) as services:
            with pytest.raises(ContextLengthExceeded) as caught:
                await events_of(services, chat("x" * 200))
            assert caught.value.limit == 20
            assert str(caught.value.prompt_tokens) in caught.value.message
            await all_free(services)
            assert services.scheduler.counters.failed == 1

    run_async(body)


def test_context_exceeded_without_numbers_is_still_told(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            with pytest.raises(ContextLengthExceeded):
                await events_of(services, chat("[[error CONTEXT_EXCEEDED]]"))

    run_async(body)


@pytest.mark.parametrize("script", ["[[endless]] [[slow 0.01]]", "[[silent 30]]"])
def test_a_client_that_leaves_frees_the_slot_for_the_next(
    launch: EngineLaunch, script: str
) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1) as services:
            client = Client()
            running = asyncio.create_task(events_of(services, chat(script), client))
            await asyncio.sleep(0.2)
            assert services.scheduler.active == 1
            client.has_left.set()
            with pytest.raises(ClientGone):
                await running
            await all_free(services)
            assert services.scheduler.counters.aborted == 1
            assert text_of(await events_of(services, chat("[[reply mine]]"))) == "mine"

    run_async(body)


def test_a_client_that_leaves_the_queue_is_forgotten(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1) as services:
            client = Client()
            running = asyncio.create_task(events_of(services, chat("[[tokens 20]] [[slow 0.01]]")))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(events_of(services, chat("never"), client))
            await asyncio.sleep(0.05)
            client.has_left.set()
            with pytest.raises(ClientGone):
                await waiting
            assert services.scheduler.counters.cancelled == 1
            assert end_of(await running).finish is Finish.STOP

    run_async(body)


def test_leaving_the_block_early_cancels_the_engine(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1) as services:
            turn = chat("[[endless]] [[slow 0.005]]", options=RequestOptions())
            async with run_turn(services, turn, Client().request) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        break
            await all_free(services)
            assert text_of(await events_of(services, chat("[[reply free]]"))) == "free"

    run_async(body)


def test_a_slot_stays_taken_until_the_engine_acknowledges(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1) as services:
            turn = chat("[[hang 2]] [[endless]]", options=RequestOptions())

            def fail(event: TurnEvent) -> None:
                assert not isinstance(event, TextPiece), "a handler's bug"

            with pytest.raises(AssertionError, match="handler"):
                await follow(services, turn, fail)
            await asyncio.sleep(0.1)
            assert services.scheduler.active == 1  # the engine hangs: it has not let go

    run_async(body)


def test_a_client_that_takes_its_time_does_not_keep_the_slot(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with (
            serving(launch, num_slots=1) as services,
            run_turn(services, chat("[[tokens 20]]"), Client().request) as events,
        ):
            taken = [await anext(events)]
            await all_free(services)  # the engine has answered
            assert text_of(await events_of(services, chat("[[reply next]]"))) == "next"
            taken += [event async for event in events]
            assert text_of(taken).endswith("word18 word19 ")
            assert end_of(taken).finish is Finish.STOP
            assert services.scheduler.counters.completed == 2

    run_async(body)


def test_full_queues_and_long_waits_are_refused(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1, max_queue=1, queue_timeout_s=1) as services:
            running = asyncio.create_task(events_of(services, chat("[[tokens 40]] [[slow 0.04]]")))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(events_of(services, chat("waits")))
            await asyncio.sleep(0.05)
            with pytest.raises(QueueFull):
                await events_of(services, chat("one too many"))
            with pytest.raises(QueueTimeout):
                await waiting
            assert end_of(await running).finish is Finish.STOP

    run_async(body)


def test_an_engine_that_dies_costs_one_turn_and_the_next_waits_for_the_restart(
    launch: EngineLaunch,
) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=1) as services:
            dying = asyncio.create_task(events_of(services, chat("[[die]] [[silent 0.2]]")))
            await asyncio.sleep(0.1)
            queued = asyncio.create_task(events_of(services, chat("[[reply queued]]")))
            with pytest.raises(HttpError) as caught:
                await dying
            assert caught.value.status == 503
            assert int(caught.value.headers["Retry-After"]) >= 1
            assert "SIGKILL" not in caught.value.message
            assert text_of(await queued) == "queued"
            assert text_of(await events_of(services, chat("[[reply next]]"))) == "next"
            assert services.scheduler.counters.failed == 1

    run_async(body)


def test_an_engine_that_dies_in_the_middle_fails_after_what_it_said(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            seen: list[TurnEvent] = []
            with pytest.raises(HttpError) as caught:
                await follow(
                    services, chat("[[pieces a|b|c|d]] [[die 3]] [[slow 0.02]]"), seen.append
                )
            assert text_of(seen) == "abc"
            assert not any(isinstance(event, TurnCompleted) for event in seen)
            assert caught.value.status == 503

    run_async(body)


@pytest.mark.parametrize("script", ["[[no-accept]] [[reply works]]", "[[unknown]] [[reply works]]"])
def test_older_and_newer_engines_are_understood(launch: EngineLaunch, script: str) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            events = await events_of(services, chat(script))
            assert isinstance(events[0], TurnAccepted)
            assert text_of(events) == "works"

    run_async(body)


def test_a_second_accept_fails_that_turn_alone(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            with pytest.raises(ColibriError):
                await events_of(services, chat("[[twice]]"))
            assert text_of(await events_of(services, chat("[[reply ok]]"))) == "ok"

    run_async(body)


def test_a_late_accept_is_waited_for(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            events = await events_of(services, chat("[[reply late]] [[silent 0.4]]"))
            assert text_of(events) == "late"
            assert services.scheduler.counters.aborted == 0

    run_async(body)


@pytest.mark.parametrize("num_slots", [1, 4])
def test_several_choices_each_get_an_answer(launch: EngineLaunch, num_slots: int) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=num_slots) as services:
            turn = chat("[[options]]", num_choices=3, options=RequestOptions(seed=7, max_tokens=9))
            events = await events_of(services, turn)
            seeds = [f'"seed":{seed}' in text_of(events, n) for n, seed in enumerate((7, 8, 9))]
            assert seeds == [True, True, True]
            ends = [event for event in events if isinstance(event, TurnCompleted)]
            assert sorted(end.choice for end in ends) == [0, 1, 2]
            assert events[-1] is ends[-1]
            assert sum(isinstance(event, TurnAccepted) for event in events) == 1
            await all_free(services)
            assert services.scheduler.counters.failed == 0

    run_async(body)


def test_choices_one_after_the_other_never_meet_another_turn_in_their_slot(
    launch: EngineLaunch,
) -> None:
    async def body() -> None:
        async with serving(launch, num_slots=2, max_queue=50) as services:
            for _ in range(8):
                turns = [chat(f"[[tokens 3]] {n}", num_choices=1 + n % 3) for n in range(8)]
                answers = await asyncio.gather(*(events_of(services, turn) for turn in turns))
                for turn, events in zip(turns, answers, strict=True):
                    for choice in range(turn.num_choices):
                        assert text_of(events, choice) == "word0 word1 word2 "

    run_async(body)


def test_log_probabilities_belong_to_the_text_they_come_with(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = chat("[[pieces a|b|END|c]]", stop=("END",), options=RequestOptions(logprobs=2))
            events = await events_of(services, turn)
            pieces = [event for event in events if isinstance(event, TextPiece)]
            tokens = [token for piece in pieces for token in piece.logprobs]
            assert [token.text for token in tokens] == ["a", "b"]
            assert all(token.logprob == -0.25 for token in tokens)
            assert [text for text, _, _ in tokens[0].top] == ["alt0", "alt1"]

    run_async(body)


def test_reasoning_has_no_log_probabilities(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=THINKING_MODEL) as services:
            turn = chat(
                "[[pieces why| not|</think>|so|.]]",
                thinking=True,
                options=RequestOptions(logprobs=0),
            )
            events = await events_of(services, turn)
            pieces = [event for event in events if isinstance(event, TextPiece)]
            assert reasoning_of(events) == "why not"
            assert [token.text for piece in pieces for token in piece.logprobs] == ["so", "."]

    run_async(body)


def test_reasoning_without_an_end_is_no_answer(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=THINKING_MODEL) as services:
            turn = chat("[[tokens 8]]", thinking=True, options=RequestOptions(max_tokens=8))
            events = await events_of(services, turn)
            assert text_of(events) == ""
            assert end_of(events).finish is Finish.LENGTH
            assert end_of(events).usage.reasoning_tokens == 8

    run_async(body)


def test_a_thinking_budget_ends_reasoning_and_the_answer_follows(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=THINKING_MODEL, num_slots=2) as services:
            turn = chat("[[tokens 100]] [[slow 0.002]]", thinking=True, thinking_budget=5)
            events = await events_of(services, turn)
            assert reasoning_of(events) == "word0 word1 word2 word3 word4 "
            assert text_of(events) == "Hello from the fake engine."
            end = end_of(events)
            assert end.finish is Finish.STOP
            assert end.usage.reasoning_tokens == 5
            assert end.usage.completion_tokens == 10
            assert isinstance(events[0], TurnAccepted)
            assert end.usage.prompt_tokens == events[0].prompt_tokens
            await all_free(services)

    run_async(body)


def test_a_budget_that_is_not_used_up_changes_nothing(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, model=THINKING_MODEL) as services:
            turn = chat("[[pieces a|</think>|b]]", thinking=True, thinking_budget=50)
            events = await events_of(services, turn)
            assert (reasoning_of(events), text_of(events)) == ("a", "b")

    run_async(body)


def test_an_answer_of_a_form_is_refused_without_grammars(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch) as services:
            turn = chat("hi", response_format=ResponseFormat("json_object"))
            with pytest.raises(HttpError) as caught:
                await events_of(services, turn)
            assert caught.value.param == "response_format"
            assert caught.value.code == "unsupported_parameter"

    run_async(body)


def test_an_option_the_engine_lacks_is_refused_by_name(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, words=["options", "segments", "model"]) as services:
            turn = chat("hi", options=RequestOptions(logprobs=1))
            with pytest.raises(HttpError) as caught:
                await events_of(services, turn)
            assert (caught.value.status, caught.value.param) == (400, "logprobs")
            await all_free(services)

    run_async(body)


def test_the_form_constrains_the_answer_and_not_the_reasoning(launch: EngineLaunch) -> None:
    words = ["options", "segments", "model", "grammar", "slots", "logprobs"]

    async def body() -> None:
        async with serving(launch, words=words, model=THINKING_MODEL) as services:
            form = ResponseFormat("json_schema", '{"type":"integer"}')
            plain = await events_of(services, chat("[[options]]", response_format=form))
            assert "json_schema" in text_of(plain)
            turn = chat(
                "[[pieces so [[options]|]|</think>|unconstrained]] [[slow 0.01]]",
                thinking=True,
                response_format=form,
            )
            events = await events_of(services, turn)
            assert "so" in reasoning_of(events)
            assert "unconstrained" not in text_of(events)
            assert "json_schema" in text_of(events)

    run_async(body)


def test_an_answer_that_is_there_at_once_leaves_others_their_turns(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with serving(launch, context_length=10_000) as services:
            turn = chat("[[tokens 2000]]", options=RequestOptions(max_tokens=2000))
            num_events, most = 0, 0

            async def follow_all() -> None:
                nonlocal num_events
                async with run_turn(services, turn, Client().request) as events:
                    async for _ in events:
                        if not num_events:
                            await asyncio.sleep(0.5)  # the engine runs ahead of whoever reads
                        num_events += 1

            following = asyncio.create_task(follow_all())
            while not following.done():
                before = num_events
                await asyncio.sleep(0)
                most = max(most, num_events - before)
            await following
            assert num_events > 2000
            assert most <= 200, "so many events in one turn of the loop"

    run_async(body)
