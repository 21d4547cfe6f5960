"""The events of the Messages API for one turn: a state machine, events in, frames out.

Blocks are opened by what they will hold: an answer that is only a tool call has no empty text block
in front of it, and none follows reasoning that had no answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.anthropic_shapes import (
    SIGNATURE,
    MessageRender,
    error_object,
    message_object,
    stop_object,
    tool_use_id,
    usage_object,
)
from colibri_cli.gateway.dialects.base import sse_frame
from colibri_cli.gateway.dialects.held_space import HeldSpace
from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallAborted,
    ToolCallFinished,
    ToolCallStarted,
    TurnAccepted,
    TurnCompleted,
    TurnProgress,
    Usage,
)

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import HttpError
    from colibri_cli.gateway.turns import TurnEvent

_EMPTY_BLOCKS: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class MessageStream:
    """Writes one message as events."""

    def __init__(self, render: MessageRender) -> None:
        self._render = render
        self._frames: list[bytes] = []
        self._has_begun = False
        self._num_blocks = 0
        self._open: str | None = None
        self._space = HeldSpace(trims=render.has_tools)
        self._has_arguments = False

    def begin(self) -> list[bytes]:
        """Return nothing: the first frame tells the length of the prompt."""
        return []

    def feed(self, event: TurnEvent) -> list[bytes]:
        """Return the frames an event adds."""
        if not self._has_begun:
            self._begin(event if isinstance(event, TurnAccepted) else TurnAccepted(0, 0, 0))
        match event:
            case ReasoningPiece():
                self._reasoning(event.text)
            case TextPiece():
                self._text(event.text)
            case ToolCallStarted():
                self._call(event)
            case ToolArguments():
                self._arguments(event.text)
            case ToolCallFinished():
                self._arguments("" if self._has_arguments else "{}")
                self._close()
            case ToolCallAborted():
                self._close()
            case TurnCompleted():
                self._complete(event)
            case TurnProgress() if event.done < event.total:
                # a comment: no client takes it for an event
                self._frames.append(f": prefill {event.done}/{event.total}\n\n".encode())
            case _:
                pass
        return self._taken()

    def keepalive(self) -> list[bytes]:
        """Return a ping."""
        return [sse_frame({"type": "ping"}, "ping")]

    def fail(self, error: HttpError) -> list[bytes]:
        """Return the error event."""
        return [sse_frame(error_object(error), "error")]

    def end(self) -> list[bytes]:
        """Return the last event."""
        self._send("message_stop")
        return self._taken()

    # ---- parts ----

    def _begin(self, accepted: TurnAccepted) -> None:
        self._has_begun = True
        usage = Usage(accepted.prompt_tokens, 0, accepted.reused_tokens)
        message = message_object(self._render, usage_object(usage, self._render))
        self._send("message_start", message=message)
        if self._render.always_thinks:
            self._ensure("thinking")

    def _reasoning(self, text: str) -> None:
        if not self._render.thinking.is_on or not text:
            return  # nobody asked for it
        if self._open != "thinking":
            self._space.end()
        self._ensure("thinking")
        if self._render.thinking.is_shown:
            self._delta({"type": "thinking_delta", "thinking": text})

    def _text(self, text: str) -> None:
        text = self._space.feed(text)
        if text:
            self._visible(text)

    def _visible(self, text: str) -> None:
        self._ensure("text")
        # written by hand: most frames of most streams are of this kind
        self._frames.append(
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":'
            f'{self._num_blocks - 1},"delta":{{"type":"text_delta","text":'
            f"{json.dumps(text, ensure_ascii=False)}}}}}\n\n".encode()
        )

    def _call(self, event: ToolCallStarted) -> None:
        self._space.end()
        self._close()
        block = {
            "type": "tool_use",
            "id": tool_use_id(event.id),
            "name": event.name,
            "input": {},
        }
        self._start("tool_use", block)
        self._has_arguments = False

    def _arguments(self, text: str) -> None:
        if text and self._open == "tool_use":
            self._has_arguments = True
            self._delta({"type": "input_json_delta", "partial_json": text})

    def _complete(self, event: TurnCompleted) -> None:
        space = self._space.end()
        if space and self._num_blocks == 0:
            self._visible(space)  # the answer is nothing but white space
        self._close()
        delta = stop_object(event)
        usage = usage_object(event.usage, self._render)
        if self._render.edits_context:
            self._send(
                "message_delta",
                delta=delta,
                usage=usage,
                context_management={"applied_edits": []},
            )
        else:
            self._send("message_delta", delta=delta, usage=usage)

    # ---- blocks ----

    def _ensure(self, kind: str) -> None:
        if self._open != kind:
            self._close()
            self._start(kind, _EMPTY_BLOCKS[kind])

    def _start(self, kind: str, block: dict[str, Any]) -> None:
        self._send("content_block_start", index=self._num_blocks, content_block=block)
        self._open = kind
        self._num_blocks += 1

    def _close(self) -> None:
        if self._open is None:
            return
        if self._open == "thinking":
            self._delta({"type": "signature_delta", "signature": SIGNATURE})
        self._send("content_block_stop", index=self._num_blocks - 1)
        self._open = None

    def _delta(self, delta: dict[str, Any]) -> None:
        self._send("content_block_delta", index=self._num_blocks - 1, delta=delta)

    def _send(self, name: str, **data: Any) -> None:  # noqa: ANN401 - any JSON value
        self._frames.append(sse_frame({"type": name, **data}, name))

    def _taken(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        return frames
