"""The engine proper: slots, scheduler and model, advanced one step at a time.

Callers hand in requests with token ids and get protocol messages back; between two calls nothing
happens. Knows no pipes, no bytes of the wire and no text beyond the bytes a token stands for. One
thread. Order of a reply's messages: Accepted, Progress*, (TokenLogprobs, TextDelta)*, telemetry,
Finished; or RequestFailed at any point.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from colibri_engine.admission import refusal
from colibri_engine.caches import make_cache
from colibri_engine.engine_config import MAX_DRAFTED_ROWS
from colibri_engine.errors import BadOption, ContextLengthExceeded, ExpertReadFailed, RequestRefused
from colibri_engine.feeding import StepFeeder
from colibri_engine.grammar import GrammarFault
from colibri_engine.grammar_guide import Guide
from colibri_engine.replies import Vocabulary, finished_message, logprobs_message, token_bytes
from colibri_engine.scheduler import Scheduler, Segment
from colibri_engine.sequence import Sequence
from colibri_engine.slots import SlotTable
from colibri_engine.speculation.base import Committed, Source
from colibri_engine.speculation.cost import FixedDepth
from colibri_engine.speculation.drafting import Drafting, StepCost
from colibri_engine.speculation.verify import Verdict, verify
from colibri_engine.telemetry import Telemetry
from colibri_protocol.messages import (
    Accepted,
    ErrorCode,
    FinishReason,
    Progress,
    RequestFailed,
    TextDelta,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.admission import Admission
    from colibri_engine.experts.tiers import ExpertTiers
    from colibri_engine.grammar import Constraint
    from colibri_engine.kernels import Batch
    from colibri_engine.kv_files.conversations import Conversations
    from colibri_engine.models.base import Model
    from colibri_protocol.messages import EngineMessage, SubmitExtended

    Ids = npt.NDArray[np.int32]
    Logits = npt.NDArray[np.float32]

logger = logging.getLogger(__name__)

# What a step may raise for reasons of its input or of memory; all else is a bug that ends us.
_STEP_FAULTS: Final = (
    MemoryError, RuntimeError, ValueError, ArithmeticError, OSError, ExpertReadFailed,
)  # fmt: skip


class Layout(NamedTuple):
    """How the engine shares itself out.

    Args:
        num_slots: Conversations that are kept, and replies that may run at once.
        chunk_tokens: Prompt rows of one step.
        num_cores: Cores the kernels use; only told, not used here.
        drafting: Who guesses ahead; None: nobody.
        shares_prefixes: Copy rows that another slot has in common with a prompt.
        tiers: Where experts are that need not all be in memory; None: all are.
    """

    num_slots: int
    chunk_tokens: int
    num_cores: int
    drafting: Drafting | None = None
    shares_prefixes: bool = True
    tiers: ExpertTiers | None = None
    kv_dtype: str = "f32"
    draft_position_bytes: int = 0


class Engine:
    """One loaded model and everything that is being answered with it.

    Args:
        model: The loaded model.
        batch: An empty batch, which tells the model the cache and position of each row.
        vocabulary: The model's tokenizer.
        admission: What may be asked of the model.
        layout: Slots, chunk size, drafts.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        vocabulary: Vocabulary,
        admission: Admission,
        layout: Layout,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.telemetry = Telemetry(model, layout.num_cores, layout.tiers)
        self._counters = self.telemetry.counters
        self._model = model
        self._vocabulary = vocabulary
        self._admission = admission
        self._clock = clock
        self._slots = SlotTable(
            layout.num_slots,
            admission.context_length,
            partial(make_cache, model, layout.kv_dtype),
            shares_prefixes=layout.shares_prefixes,
            draft_position_bytes=layout.draft_position_bytes,
        )
        self._tiers = layout.tiers
        self._scheduler = Scheduler(layout.chunk_tokens)
        self._chunk_tokens = layout.chunk_tokens
        self._drafting = layout.drafting or Drafting((), model.config.vocab_size, FixedDepth(0))
        self._expected: Constraint | None = None
        max_rows = layout.chunk_tokens + layout.num_slots + MAX_DRAFTED_ROWS
        self._feeder = StepFeeder(model, batch, self._slots, max_rows)

    def keep(self, conversations: Conversations) -> None:
        """Go on from saved conversations, and save from now on."""
        conversations.resume(self._slots)
        self._slots.keeper = conversations

    def close(self) -> None:
        """Save what is left to save."""
        if self._slots.keeper is not None:
            self._slots.keeper.close()
        if self._tiers is not None:
            self._tiers.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        return len(self._scheduler) == 0

    @property
    def uses_guides(self) -> bool:
        """Whether a grammar that is not enforced is of any use."""
        return self._drafting.has(Source.GRAMMAR)

    def expect(self, grammar: Constraint) -> None:
        """Guess with this grammar in replies that bring none; it constrains nothing."""
        self._expected = grammar

    def submit(
        self,
        request: SubmitExtended,
        prompt: Ids,
        constraint: Constraint | None = None,
        guide: Guide | None = None,
    ) -> list[EngineMessage]:
        """Accept a request, or refuse it.

        Args:
            request: The request; its segments and its grammar's text are not looked at.
            prompt: Their token ids, (n,) int32.
            constraint: Its compiled grammar.
            guide: A grammar that it may follow, as help for drafts.
        """
        if self._scheduler.get(request.id) is not None:
            return [RequestFailed(request.id, ErrorCode.DUPLICATE_ID)]
        try:
            admitted = self._admission.admit(request.options, prompt)
            slot, num_reused = self._slots.acquire(request.id, request.slot, prompt)
        except (RequestRefused, ContextLengthExceeded, BadOption, MemoryError) as exc:
            self._counters.num_refused += 1
            return [refusal(request.id, exc)]
        sequence = Sequence(
            request_id=request.id,
            slot_idx=slot.idx,
            prompt=prompt,
            sampler=admitted.sampler,
            stop_ids=admitted.stop_ids,
            max_new_tokens=admitted.max_new_tokens,
            num_logprobs=admitted.num_logprobs,
            num_reused=num_reused,
            accepted_at=self._clock(),
            baseline=self.telemetry.baseline(),
            constraint=constraint,
            guide=guide or (None if self._expected is None else Guide(self._expected)),
            history=slot.history,
            max_draft=0 if slot.cache.has_state else admitted.max_draft,
        )
        self._scheduler.add(sequence)
        self._counters.num_accepted += 1
        self._counters.prompt_tokens += prompt.size
        self._counters.reused_tokens += num_reused
        return [Accepted(request.id, prompt.size, num_reused, slot.idx)]

    def stop(self, request_id: int) -> list[EngineMessage]:
        """End a reply normally."""
        sequence = self._scheduler.get(request_id)
        if sequence is None:
            return [RequestFailed(request_id, ErrorCode.NOT_FOUND)]
        out: list[EngineMessage] = []
        self._finish(sequence, FinishReason.STOPPED, -1, out)
        return out

    def stop_all(self) -> list[EngineMessage]:
        """End every reply normally."""
        out: list[EngineMessage] = []
        for sequence in self._scheduler:
            self._finish(sequence, FinishReason.STOPPED, -1, out)
        return out

    def cancel(self, request_id: int) -> list[EngineMessage]:
        """Drop a reply; what its slot holds stays good for the next."""
        sequence = self._scheduler.get(request_id)
        if sequence is None:
            return [RequestFailed(request_id, ErrorCode.NOT_FOUND)]
        self._counters.num_cancelled += 1
        self._leave(sequence)
        return [RequestFailed(request_id, ErrorCode.CANCELLED)]

    def step(self) -> list[EngineMessage]:
        """Run the model once for everything that is in progress."""
        self._drafting.propose(self._scheduler)
        plan = self._scheduler.plan()
        out: list[EngineMessage] = []
        if plan:
            self._advance(plan, out)
            self._slots.save_now_and_then(self._clock())
        return out

    def report(self) -> dict[str, object]:
        """Return the raw counters, for STATS."""
        slots = [
            {
                "busy": slot.request_id is not None,
                "tokens": len(slot.history),
                "kv_bytes": slot.cache.nbytes,
            }
            for slot in self._slots.slots
        ]
        return {**self.telemetry.report(), "slots": slots, "drafts": self._drafting.report()}

    def _advance(self, plan: list[Segment], out: list[EngineMessage]) -> None:
        started = self._clock()
        try:
            logits = self._feeder.run(plan)
        except _STEP_FAULTS as exc:
            self._feeder.unfeed(plan)
            if any(segment.sequence.draft for segment in plan):  # they are not worth a failure
                for segment in plan:
                    segment.sequence.draft = ()
                    segment.sequence.max_draft = 0
                self._advance([segment.without_draft() for segment in plan], out)
                return
            if len(plan) == 1:
                self._fail(plan[0].sequence, exc, out)
                return
            # Each alone gives the same tokens and shows whose fault it was.
            logger.warning("a step of %d replies failed (%s); trying each alone", len(plan), exc)
            for segment in plan:
                self._advance([segment], out)
            return
        now = self._clock()
        self._counters.num_forwards += 1
        self._counters.model_s += now - started
        cost = StepCost(
            num_rows=sum(segment.num_rows for segment in plan),
            is_decode=all(segment.is_decode for segment in plan),
            seconds=now - started,
        )
        told = self._counters.completion_tokens
        committed = self._commit(plan, logits, now, out)
        self._drafting.observe(committed, cost)
        if self._tiers is not None:
            self._tiers.after_step(cost.num_rows, self._counters.completion_tokens - told)

    def _commit(
        self, plan: list[Segment], logits: Logits, now: float, out: list[EngineMessage]
    ) -> list[Committed]:
        """Choose tokens where there are logits, and record the rows that stay."""
        committed: list[Committed] = []
        rejected: list[int] = []
        row = position = 0
        for segment in plan:
            sequence = segment.sequence
            rows = logits[position : position + segment.num_logits]
            verdict = verify(sequence, rows)
            kept = verdict.num_rows if segment.is_decode else segment.num_rows
            self._record(segment, kept, out)
            self._tell(sequence, rows, verdict, now, out)
            committed.append(Committed(sequence, segment.start, kept, row, verdict.num_accepted))
            rejected.extend(range(row + kept, row + segment.num_rows))
            row += segment.num_rows
            position += segment.num_logits
        if rejected:
            self._model.uncount(rejected)
        return committed

    def _record(self, segment: Segment, num_rows: int, out: list[EngineMessage]) -> None:
        """Enter the first rows of a segment into its slot's history, and drop the others."""
        sequence, start, _, wants_logits = segment
        slot = self._slots[sequence.slot_idx]
        unfed_before = sequence.num_unfed
        sequence.num_fed += num_rows
        sequence.num_forwards += 1
        self._counters.num_rows += num_rows
        if segment.is_decode:
            slot.history.append(sequence.pending)
            for token_id in sequence.draft[: num_rows - 1]:
                slot.history.append(token_id)
            if num_rows < segment.num_rows:
                slot.cache.truncate(start + num_rows)
        else:
            slot.history.extend(sequence.prompt[start : start + num_rows])
            # Where the prompt ends, for the turn after it; and where its last chunk begins,
            # for the same prompt once more: its last row is always computed again.
            if wants_logits or sequence.num_unfed <= self._chunk_tokens < unfed_before:
                slot.cache.snapshot()
            out.append(Progress(sequence.request_id, sequence.num_fed, sequence.num_prompt))
        assert slot.cache.length == len(slot.history)

    def _tell(
        self,
        sequence: Sequence,
        rows: Logits,
        verdict: Verdict,
        now: float,
        out: list[EngineMessage],
    ) -> None:
        """Tell the tokens that were chosen, and end the reply if one was the last."""
        for row, token_id in zip(rows, verdict.tokens, strict=False):
            if sequence.num_logprobs is not None:
                out.append(logprobs_message(sequence, row, token_id, self._vocabulary))
            if sequence.num_generated == 0:
                sequence.first_token_at = now
            sequence.num_generated += 1
            sequence.last_token_at = now
            sequence.pending = token_id
            self._counters.completion_tokens += 1
            text = sequence.text.feed(token_bytes(self._vocabulary, token_id))
            if text:
                out.append(TextDelta(sequence.request_id, text))
        if verdict.fault is not None:
            self._fail(sequence, verdict.fault, out)
        elif verdict.finish is not None:
            self._finish(sequence, verdict.finish, verdict.stop_id, out)

    def _finish(
        self, sequence: Sequence, reason: FinishReason, stop_id: int, out: list[EngineMessage]
    ) -> None:
        self._leave(sequence)
        self._counters.num_finished += 1
        tail = sequence.text.flush()
        if tail:
            out.append(TextDelta(sequence.request_id, tail))
        out.append(self.telemetry.profile(sequence, self._clock()))
        out.extend(self.telemetry.snapshot())
        if self._tiers is not None:
            self._tiers.end_turn()
        hit_percent = self.telemetry.hit_percent(sequence.baseline)
        out.append(finished_message(sequence, reason, stop_id, hit_percent))

    def _fail(self, sequence: Sequence, exc: Exception, out: list[EngineMessage]) -> None:
        self._leave(sequence)
        self._counters.num_failed += 1
        if isinstance(exc, GrammarFault):  # the request's own fault
            logger.warning("request %d: the grammar: %s", sequence.request_id, exc)
        elif isinstance(exc, ExpertReadFailed):  # the disk's; what to do about it stands there
            logger.error("request %d: %s; %s", sequence.request_id, exc, exc.hint)
        else:
            logger.error("request %d failed: %r", sequence.request_id, exc, exc_info=exc)
        out.append(refusal(sequence.request_id, exc))

    def _leave(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        self._slots.release(self._slots[sequence.slot_idx])
