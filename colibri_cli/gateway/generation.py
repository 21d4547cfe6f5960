"""run_turn: one request for text from admission to its last event.

The client may leave at any moment: while it waits it gives up its place, afterwards the engine is
told to cancel. A slot is given back when the engine has let go of it, whatever happened here, and
however slowly the client takes what was made.
Several choices share what the first one's prompt cost: the others begin when it has been read, in
free slots if there are any, else one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from colibri_cli.backends import base
from colibri_cli.gateway import turns
from colibri_cli.gateway.choice import ChoiceEvents
from colibri_cli.gateway.content_log import AnswerLog
from colibri_cli.gateway.http_types import ClientGone
from colibri_cli.gateway.slots import conversation_key
from colibri_cli.gateway.turn_options import Demands, demands_of, explained
from colibri_cli.supervisor.admission import Outcome
from colibri_protocol.errors import ColibriError
from colibri_protocol.limits import ANY_SLOT
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from colibri_cli.gateway.http_types import Request
    from colibri_cli.gateway.services import Services
    from colibri_cli.gateway.slots import ConversationKey
    from colibri_cli.gateway.turns import TurnEvent, TurnRequest
    from colibri_cli.supervisor.admission import Ticket
    from colibri_cli.supervisor.waiting_line import Pick

Result = TypeVar("Result")

# Where an engine runs ahead, thousands of events may be there at once: some 2 ms of the loop.
_EVENTS_A_TURN: Final = 64


@asynccontextmanager
async def run_turn(
    services: Services, turn: TurnRequest, request: Request
) -> AsyncIterator[AsyncIterator[TurnEvent]]:
    """Run a turn; the first event is `TurnAccepted`, the last one the last `TurnCompleted`.

    Leaving the block early cancels what still runs.

    Args:
        services: What the server works with.
        turn: What is asked for.
        request: Who asks; its `disconnected` ends the turn.

    Raises:
        HttpError: it cannot be done; before the first event nothing was committed.
        ColibriError: likewise.
        ClientGone: nobody is there any more.
    """
    run = _TurnRun(services, turn, request)
    try:
        await run.start()
        async with aclosing(run.events()) as events:
            yield events
    except ColibriError as error:
        health = await services.backend.health()
        raise explained(error, turn, health.ready_in_s) from error
    finally:
        run.close()


@dataclass(slots=True)
class _Lane:
    """One ticket and the answers made with it, one after the other."""

    ticket: Ticket
    answer: base.Answer | None = None
    outcome: Outcome = Outcome.ABORTED  # unless something else is known

    def note_end(self, ended: asyncio.Future[bool]) -> None:
        """Give the ticket back if the engine has made the last answer to its end."""
        if ended.result():
            self.ticket.release(Outcome.COMPLETED)

    def leave(self) -> None:
        """Give the ticket back once the engine has let go of the last answer."""
        ended = self.answer.ended if self.answer is not None else None
        if ended is None or ended.done():
            self.ticket.release(self.outcome)
        else:
            ended.add_done_callback(lambda _: self.ticket.release(self.outcome))


class _TurnRun:
    def __init__(self, services: Services, turn: TurnRequest, request: Request) -> None:
        self._services = services
        self._turn = turn
        self._request = request
        self._key: ConversationKey = conversation_key(turn)
        shares = services.scheduler.shares
        self._owner = shares.owner_of(request.key_name, request.peer)
        self._pick: Pick | None = None
        self._demands = Demands(turn.generation)
        self._lanes: list[_Lane] = []
        self._is_accepted = False
        self._has_text = False
        self._num_computed = 0  # prompt tokens that were not there before
        self._waiting: set[asyncio.Task[Any]] = set()
        self._gone: asyncio.Future[None] | None = None
        self._end_error: Exception | None = None  # why it ends before its time

    # ---- the client ----

    def _watch(self) -> None:
        if self._request.disconnected is not None:
            self._gone = asyncio.ensure_future(self._request.disconnected())
            self._gone.add_done_callback(self._on_gone)

    def _on_gone(self, gone: asyncio.Future[None]) -> None:
        if not gone.cancelled() and gone.exception() is None:
            self.end(ClientGone())

    def end(self, error: Exception) -> None:
        """Let it fail, whatever it waits for."""
        if self._end_error is not None:
            return
        self._end_error = error
        for task in self._waiting:
            task.cancel()
        for lane in self._lanes:
            if lane.answer is not None:
                lane.answer.abort(error)

    async def _unless_ended(self, waiting: Coroutine[Any, Any, Result]) -> Result:
        """Wait for something, but not longer than there is a reason to.

        Raises:
            ClientGone: the client left; or another error that ended the turn.
        """
        if self._end_error is not None:
            waiting.close()
            raise self._end_error
        # In the present task: each further one would keep a request two turns of the loop longer.
        task = asyncio.current_task()
        assert task is not None
        num_cancels = task.cancelling()
        self._waiting.add(task)
        try:
            return await waiting
        except asyncio.CancelledError:
            error = self._reason_to_end()
            if error is None or task.cancelling() > num_cancels + 1:
                raise  # not only because of `end`
            raise error from None
        finally:
            self._waiting.discard(task)
            if self._reason_to_end() is not None:  # it came while we waited: `end` has cancelled
                task.uncancel()

    def _reason_to_end(self) -> Exception | None:
        return self._end_error

    # ---- life ----

    async def start(self) -> None:
        """Wait for a slot."""
        self._services.running.add(self.end)
        self._watch()
        card = (await self._unless_ended(self._services.backend.models()))[0]
        self._demands = demands_of(self._turn, card)
        if card.has_slots:
            self._pick = self._services.slots.pick_for(
                self._key, engine_chooses=Word.SLOTS in card.capabilities
            )
        else:
            self._pick = _no_slot
        self._lanes.append(_Lane(await self._admit()))

    async def _admit(self) -> Ticket:
        scheduler, peer = self._services.scheduler, self._owner
        ticket = None
        if self._turn.cache_slot is None:
            ticket = scheduler.try_admit(peer, self._pick)
        if ticket is None:
            admission = scheduler.admit(peer, self._turn.cache_slot, self._pick)
            ticket = await self._unless_ended(admission)
        self._services.statistics.queue_wait_s.add(ticket.wait_s)
        ticket.label = self._request.id.removeprefix("req_")
        return ticket

    def close(self) -> None:
        """Give everything back."""
        self._services.running.discard(self.end)
        if self._gone is not None:
            self._gone.cancel()
        for lane in self._lanes:
            lane.leave()

    # ---- events ----

    async def events(self) -> AsyncGenerator[TurnEvent]:
        """Yield what happens, all choices mixed."""
        first = self._lanes[0]
        if self._turn.num_choices == 1:
            async with aclosing(self._choice(0, first)) as events:
                async for event in events:
                    yield event
            return
        async with aclosing(self._all_choices(first)) as events:
            async for event in events:
                yield event

    async def _all_choices(self, first: _Lane) -> AsyncGenerator[TurnEvent]:
        """Run several choices: the first alone until its prompt is read, then side by side."""
        waiting = deque(range(self._turn.num_choices))
        found: asyncio.Queue[TurnEvent | Exception | None] = asyncio.Queue()
        workers = [asyncio.create_task(self._work(first, waiting, found))]
        num_running = 1
        try:
            while num_running:
                event = await found.get()
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    num_running -= 1
                    continue
                yield event
                if waiting and len(workers) == 1 and turns.shows_progress(event):
                    for lane in self._more_lanes(len(waiting)):
                        workers.append(asyncio.create_task(self._work(lane, waiting, found)))
                        num_running += 1
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _more_lanes(self, wanted: int) -> list[_Lane]:
        lanes: list[_Lane] = []
        while len(lanes) < wanted:
            ticket = self._services.scheduler.try_admit(self._owner, self._pick)
            if ticket is None:
                break
            lanes.append(_Lane(ticket))
        self._lanes += lanes
        return lanes

    async def _work(
        self,
        lane: _Lane,
        waiting: deque[int],
        found: asyncio.Queue[TurnEvent | Exception | None],
    ) -> None:
        """Make choices on one lane until none is left."""
        lane.outcome = Outcome.COMPLETED
        try:
            while waiting:
                async with aclosing(self._choice(waiting.popleft(), lane)) as events:
                    async for event in events:
                        found.put_nowait(event)
        except Exception as error:  # noqa: BLE001 - raised again where the events are taken
            found.put_nowait(error)
        finally:
            found.put_nowait(None)

    async def _choice(self, index: int, lane: _Lane) -> AsyncGenerator[TurnEvent]:
        """Make one answer."""
        choice, log = ChoiceEvents(index), AnswerLog(self._request.id, index)
        lane.outcome = Outcome.ABORTED
        num_before, was_refused = lane.ticket.pieces, False
        try:
            lane.answer = answer = await self._unless_ended(self._begin(index, lane))
            if self._turn.num_choices == 1:
                answer.ended.add_done_callback(lane.note_end)
            num_taken = 0
            async with answer:
                async for event in answer:
                    num_taken += 1
                    if num_taken % _EVENTS_A_TURN == 0:
                        await asyncio.sleep(0)
                    if isinstance(event, base.Started):
                        told: TurnEvent | None = self._place(event, lane)
                    else:
                        told = choice.take(event)
                        self._measure(event, lane)
                    if told is None:
                        continue
                    log.take(told)
                    if not self._is_accepted:
                        self._is_accepted = True
                        if not isinstance(told, turns.TurnAccepted):
                            yield self._accepted(base.Started(0, None), lane)
                    yield told
            lane.outcome = Outcome.COMPLETED
        except ClientGone:
            raise
        except Exception:
            lane.outcome = Outcome.FAILED
            was_refused = not self._is_accepted
            raise
        finally:
            if choice.completed is None and lane.answer is not None and not was_refused:
                self._count_unfinished(lane.ticket, lane.ticket.pieces - num_before)
            log.close()

    async def _begin(self, index: int, lane: _Lane) -> base.Answer:
        ticket = lane.ticket
        if lane.answer is not None:
            ticket.resume()
        generation = self._demands.generation
        options = generation.options
        if index and options.seed is not None:  # equal seeds would give equal answers
            options = replace(options, seed=(options.seed + index) % 2**64)
        generation = replace(
            generation,
            options=options,
            slot=_slot_of(ticket),
            next_slot=partial(_next_slot, ticket),
            label=self._request.id,
            num_bytes=len(self._request.body),
        )
        backend = self._services.backend
        if self._demands.conversation is not None:
            answer = await backend.chat(self._demands.conversation, generation)
        else:
            answer = await backend.complete(self._turn.prompt or "", generation)
        ticket.is_sent = True
        return answer

    def _place(self, event: base.Started, lane: _Lane) -> TurnEvent | None:
        """Note where an answer is made, and tell the first time that it is."""
        ticket = lane.ticket
        if event.slot is not None:
            ticket.assign(event.slot)
        if ticket.slot is not None:
            self._services.slots.learn(ticket.slot, self._key)
        ticket.prompt_tokens = event.prompt_tokens
        if self._is_accepted:
            return None
        self._num_computed = event.prompt_tokens - (event.reused_tokens or 0)
        return self._accepted(event, lane)

    def _accepted(self, event: base.Started, lane: _Lane) -> turns.TurnAccepted:
        return turns.TurnAccepted(
            prompt_tokens=event.prompt_tokens,
            reused_tokens=event.reused_tokens or 0,
            queue_wait_ms=round(lane.ticket.wait_s * 1000),
            slot=lane.ticket.slot,
        )

    def _measure(self, event: base.AnswerEvent, lane: _Lane) -> None:
        statistics = self._services.statistics
        if isinstance(event, base.Completed):
            usage = turns.Usage(
                event.prompt_tokens,
                event.completion_tokens,
                event.reused_tokens,
                event.reasoning_tokens,
            )
            statistics.add_choice(usage, event.tokens_per_second)
            self._count_tokens(event.prompt_tokens + event.completion_tokens)
            return
        if isinstance(event, base.PrefillProgress):
            lane.ticket.prefilled_tokens = event.done
            return
        ticket = lane.ticket
        ticket.pieces += 1
        if ticket.pieces > 1:
            return
        ticket.decode_began = asyncio.get_running_loop().time()
        if not self._has_text:
            self._has_text = True
            statistics.add_first_token(ticket.decode_began - ticket.began, self._num_computed)

    def _count_unfinished(self, ticket: Ticket, num_pieces: int) -> None:
        """Count an answer that was left or broke, or leaving early would make answers free."""
        prompt_tokens = ticket.prompt_tokens  # 0: the server behind tells it at the end only
        self._count_tokens((prompt_tokens or len(self._request.body) // 4) + num_pieces)

    def _count_tokens(self, num_tokens: int) -> None:
        now = asyncio.get_running_loop().time()
        self._services.scheduler.shares.note_tokens(self._owner, num_tokens, now)


def _no_slot(free: tuple[int, ...], must_name: bool) -> None:
    """Leave every choice to the server behind."""
    del free, must_name


def _slot_of(ticket: Ticket) -> int:
    return ANY_SLOT if ticket.slot is None else ticket.slot


def _next_slot(ticket: Ticket) -> int:
    """Return the slot of a further part, which is sent at once."""
    ticket.resume()
    ticket.is_sent = True
    return _slot_of(ticket)
