"""One choice of a turn: what a backend says about an answer, as events of the turn."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from colibri_cli.backends import base
from colibri_cli.chat_formats.tool_formats import base as calls
from colibri_cli.gateway import turns

if TYPE_CHECKING:
    from colibri_protocol.messages import TokenLogprobs


class ChoiceEvents:
    """Counts calls, names them, and tells why the answer ended.

    Args:
        index: The choice's number.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._num_calls = 0
        self._num_started = 0
        self._was_aborted = False
        self.completed: base.Completed | None = None

    def take(self, event: base.AnswerEvent) -> turns.TurnEvent | None:
        """Return what an event of the answer means to the turn; None where it means nothing."""
        index = self._index
        if isinstance(event, base.TextDelta):
            return turns.TextPiece(event.text, index, tuple(map(_logprob, event.logprobs)))
        if isinstance(event, base.ReasoningDelta):
            return turns.ReasoningPiece(event.text, index)
        if isinstance(event, base.PrefillProgress):
            return turns.TurnProgress(event.done, event.total) if index == 0 else None
        if isinstance(event, base.Completed):
            return self._complete(event)
        return self._call_event(event)

    def _call_event(self, event: base.AnswerEvent) -> turns.TurnEvent | None:
        if isinstance(event, calls.CallStarted):
            self._num_started += 1
            call_id = event.id or f"call_{secrets.token_hex(12)}"
            return turns.ToolCallStarted(self._num_started - 1, call_id, event.name, self._index)
        call = self._num_started - 1
        if isinstance(event, calls.CallArguments):
            return turns.ToolArguments(call, event.text, self._index)
        if isinstance(event, calls.CallFinished):
            self._num_calls += 1
            return turns.ToolCallFinished(call, self._index)
        if isinstance(event, calls.CallAborted):
            self._was_aborted = True
            return turns.ToolCallAborted(call, event.raw, self._index)
        return None

    def _complete(self, done: base.Completed) -> turns.TurnCompleted:
        self.completed = done
        return turns.TurnCompleted(
            finish=self._finish(done),
            usage=turns.Usage(
                prompt_tokens=done.prompt_tokens,
                completion_tokens=done.completion_tokens,
                reused_tokens=done.reused_tokens,
                reasoning_tokens=done.reasoning_tokens,
            ),
            stop_text=done.stop_text,
            choice=self._index,
            tokens_per_second=done.tokens_per_second,
            hit_percent=done.hit_percent,
            rss_gb=done.rss_gb,
        )

    def _finish(self, done: base.Completed) -> turns.Finish:
        """Tell the truth: a limit that cut a call is a limit, however many came before it."""
        is_limited = done.finish == "length"
        is_cut = is_limited and (done.is_call_cut or self._was_aborted)
        if self._num_calls and not is_cut:
            return turns.Finish.TOOL_CALLS
        if is_limited:
            return turns.Finish.LENGTH
        return turns.Finish.STOP if done.stop_text is None else turns.Finish.STOP_SEQUENCE


def _logprob(token: TokenLogprobs) -> turns.TokenLogprob:
    top = tuple((_text(t.token_bytes), t.token_bytes, t.logprob) for t in token.top)
    return turns.TokenLogprob(_text(token.token_bytes), token.token_bytes, token.logprob, top)


def _text(token_bytes: bytes) -> str:
    return token_bytes.decode("utf-8", "replace")
