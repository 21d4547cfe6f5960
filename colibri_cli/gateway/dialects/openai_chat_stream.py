"""Chat completion chunks: a role chunk per choice, then reasoning, text and calls as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.dialects.base import compact_json
from colibri_cli.gateway.dialects.openai_shapes import chat_logprobs
from colibri_cli.gateway.dialects.openai_stream import ChunkStream
from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallFinished,
    ToolCallStarted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.openai_sampling import OpenAIRender
    from colibri_cli.gateway.turns import TurnEvent


class ChatStream(ChunkStream):
    """Writes one chat turn."""

    def __init__(self, render: OpenAIRender) -> None:
        super().__init__(render, "chat.completion.chunk")
        self._without_arguments: set[tuple[int, int]] = set()

    def begin(self) -> list[bytes]:
        """Return the role chunk of every choice."""
        delta = {"role": "assistant", "content": ""}
        return [self._delta(index, delta) for index in range(self.render.num_choices)]

    def piece(self, event: TurnEvent) -> list[bytes]:
        """Return the chunks of a piece of the answer."""
        if isinstance(event, TextPiece):
            return [self._text(event)]
        if isinstance(event, ReasoningPiece):
            return [self._plain(event.choice, "reasoning_content", event.text)]
        if isinstance(event, ToolCallStarted):
            self._without_arguments.add((event.choice, event.index))
            function = {"name": event.name, "arguments": ""}
            call = {"index": event.index, "id": event.id, "type": "function", "function": function}
            return [self._delta(event.choice, {"tool_calls": [call]})]
        if isinstance(event, ToolArguments):
            self._without_arguments.discard((event.choice, event.index))
            return [self._arguments(event.choice, event.index, event.text)]
        if isinstance(event, ToolCallFinished) and (
            (event.choice, event.index) in self._without_arguments
        ):
            return [self._arguments(event.choice, event.index, "{}")]
        return []

    def finish(self, choice: int, word: str) -> bytes:
        """Return the last chunk of a choice."""
        return self._delta(choice, {}, word, self._logprobs(choice))

    def keepalive(self) -> list[bytes]:
        """Return a chunk that adds nothing, or next to nothing where that was asked for."""
        return [self._plain(0, "reasoning_content", self.render.keepalive)]

    def _text(self, event: TextPiece) -> bytes:
        if self.render.num_logprobs is None:
            return self._plain(event.choice, "content", event.text)
        logprobs = self._logprobs(event.choice)
        return self._delta(event.choice, {"content": event.text}, None, logprobs)

    def _arguments(self, choice: int, index: int, text: str) -> bytes:
        more = {"index": index, "function": {"arguments": text}}
        return self._delta(choice, {"tool_calls": [more]})

    def _plain(self, choice: int, name: str, text: str) -> bytes:
        """Return what `_delta` would for one text, on the path that must be fast."""
        return self.chunk(
            f'{{"index":{choice},"delta":{{"{name}":{compact_json(text)}}},'
            '"logprobs":null,"finish_reason":null}'
        )

    def _delta(
        self,
        choice: int,
        delta: Mapping[str, Any],
        finish: str | None = None,
        logprobs: Mapping[str, Any] | None = None,
    ) -> bytes:
        body = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self.chunk(compact_json(body))

    def _logprobs(self, choice: int) -> dict[str, Any] | None:
        tokens = self.take_logprobs(choice)
        if not tokens or self.render.num_logprobs is None:
            return None
        return chat_logprobs(tokens, self.render.num_logprobs)
