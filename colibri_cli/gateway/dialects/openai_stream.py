"""What the chunks of both OpenAI text endpoints share: envelope, held figures, the end.

Pieces as they come, one chunk with the finish reason per choice, a usage chunk if asked for,
figures if asked for, `[DONE]`. After an error nothing of that follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import compact_json, total_usage
from colibri_cli.gateway.dialects.openai_shapes import (
    FINISH_WORDS,
    telemetry_body,
    usage_body,
)
from colibri_cli.gateway.problems import render_openai_error
from colibri_cli.gateway.turns import TextPiece, TurnAccepted, TurnCompleted, TurnProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.openai_sampling import OpenAIRender
    from colibri_cli.gateway.http_types import HttpError
    from colibri_cli.gateway.turns import TokenLogprob, TurnEvent

DONE_FRAME: Final = b"data: [DONE]\n\n"


class ChunkStream:
    """Writes one turn as chunks; a dialect says how its choices look.

    Args:
        render: What the answer needs besides its events.
        object_word: The chunks' `object`.
    """

    def __init__(self, render: OpenAIRender, object_word: str) -> None:
        self.render = render
        envelope = {
            "id": render.id,
            "object": object_word,
            "created": render.created,
            "model": render.model,
        }
        self._head = f"data: {compact_json(envelope)[:-1]}"  # open: members follow
        self._tail = ',"usage":null}\n\n' if render.include_usage else "}\n\n"
        self._queue_wait_ms: int | None = None
        self._completed: list[TurnCompleted] = []
        self._held: list[list[TokenLogprob]] = [[] for _ in range(render.num_choices)]

    # ---- what a dialect fills in ----

    def begin(self) -> list[bytes]:
        """Return what comes before any event."""
        return [b": accepted\n\n"]  # a comment: the head of the response goes out with it

    def piece(self, event: TurnEvent) -> list[bytes]:
        """Return the chunks of a piece of the answer; empty texts do not come here."""
        raise NotImplementedError

    def finish(self, choice: int, word: str) -> bytes:
        """Return the last chunk of a choice."""
        raise NotImplementedError

    def keepalive(self) -> list[bytes]:
        """Return a chunk that adds nothing."""
        raise NotImplementedError

    # ---- what they share ----

    def feed(self, event: TurnEvent) -> list[bytes]:
        """Return the chunks of an event."""
        if isinstance(event, TextPiece):
            if event.logprobs:
                self._held[event.choice].extend(event.logprobs)
            # without text, its log-probabilities go out with the next chunk that has some
            return self.piece(event) if event.text else []
        if isinstance(event, TurnCompleted):
            self._completed.append(event)
            return [self.finish(event.choice, FINISH_WORDS[event.finish])]
        if isinstance(event, TurnProgress):  # a comment: no client takes it for an answer
            return [f": prefill {event.done}/{event.total}\n\n".encode()]
        if isinstance(event, TurnAccepted):
            self._queue_wait_ms = event.queue_wait_ms
            return []
        return self.piece(event)

    def fail(self, error: HttpError) -> list[bytes]:
        """Return the error event; no `[DONE]` follows it."""
        return [b"data: " + render_openai_error(error, self.render.id).body + b"\n\n"]

    def end(self) -> list[bytes]:
        """Return usage and figures, where asked for, and the end mark."""
        frames: list[bytes] = []
        if self.render.include_usage:
            usage = total_usage([one.usage for one in self._completed])
            frames.append(self._without_choices({"usage": usage_body(usage)}))
        if self.render.has_telemetry:
            figures = telemetry_body(self._completed, self._queue_wait_ms)
            frames.append(self._without_choices({"colibri": figures}))
        return [*frames, DONE_FRAME]

    def chunk(self, choice: str) -> bytes:
        """Return the chunk of one choice, given as JSON text."""
        # a lone surrogate that a model spelled as JSON escapes must not break the stream
        return f'{self._head},"choices":[{choice}]{self._tail}'.encode(errors="replace")

    def take_logprobs(self, choice: int) -> list[TokenLogprob]:
        """Return the log-probabilities that are due, and forget them."""
        held = self._held[choice]
        if held:
            self._held[choice] = []
        return held

    def _without_choices(self, members: Mapping[str, Any]) -> bytes:
        return f'{self._head},"choices":[],{compact_json(members)[1:]}\n\n'.encode()
