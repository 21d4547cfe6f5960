"""The events of the Responses API for one turn: a state machine, events in, frames out.

Every output item is added, filled, and done before the next one; `sequence_number` counts frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.dialects.base import sse_frame
from colibri_cli.gateway.dialects.held_space import HeldSpace
from colibri_cli.gateway.dialects.responses_shapes import (
    ResponseRender,
    call_item,
    logprob_objects,
    message_item,
    reasoning_item,
    reasoning_part,
    remember,
    response_object,
    status_of,
    summary_part,
    text_part,
)
from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    TokenLogprob,
    ToolArguments,
    ToolCallAborted,
    ToolCallFinished,
    ToolCallStarted,
    TurnCompleted,
    TurnProgress,
)

if TYPE_CHECKING:
    from colibri_cli.gateway.dialects.responses_input import Item
    from colibri_cli.gateway.http_types import HttpError
    from colibri_cli.gateway.turns import TurnEvent


class ResponseStream:
    """Writes one response as events."""

    def __init__(self, render: ResponseRender) -> None:
        self._render = render
        self._frames: list[bytes] = []
        self._number = 0
        self._index = -1  # of the newest output item
        self._output: list[Item] = []
        self._open: str | None = None  # "reasoning", "text" or "call"
        self._item_id = ""
        self._texts: list[str] = []
        self._tokens: list[TokenLogprob] = []
        self._due: list[TokenLogprob] = []  # of text that is still held back
        self._call: ToolCallStarted | None = None
        self._space = HeldSpace(trims=render.has_tools)

    def begin(self) -> list[bytes]:
        """Return the first two events."""
        for name in ("response.created", "response.in_progress"):
            self._send(name, response=response_object(self._render, "in_progress"))
        return self._taken()

    def feed(self, event: TurnEvent) -> list[bytes]:
        """Return the frames an event adds."""
        match event:
            case ReasoningPiece():
                self._reasoning(event.text)
            case TextPiece():
                self._due += event.logprobs
                self._text(self._space.feed(event.text))
            case ToolCallStarted():
                self._start_call(event)
            case ToolArguments():
                self._arguments(event.text)
            case ToolCallFinished():
                self._close("completed")
            case ToolCallAborted():
                self._close("incomplete", is_kept=False)
            case TurnCompleted():
                self._complete(event)
            case TurnProgress() if event.done < event.total:
                # a comment: no client takes it for an event
                self._frames.append(f": prefill {event.done}/{event.total}\n\n".encode())
            case _:
                pass
        return self._taken()

    def keepalive(self) -> list[bytes]:
        """Return an event that says what was true before; agents do not count comments as life."""
        self._send(
            "response.in_progress",
            response=response_object(self._render, "in_progress", self._output),
        )
        return self._taken()

    def fail(self, error: HttpError) -> list[bytes]:
        """Return the event of a failed response."""
        body = response_object(self._render, "failed", self._output, error=error)
        self._send("response.failed", response=body)
        return self._taken()

    def end(self) -> list[bytes]:
        """Return nothing: the completed response was the last event."""
        return []

    # ---- parts ----

    def _reasoning(self, text: str) -> None:
        if not text:
            return
        if self._open != "reasoning":
            self._space.end()
            self._close("completed")
            self._add("rs_", "reasoning")
            self._send_item(
                "added", reasoning_item(self._render, self._item_id, None, "in_progress")
            )
            if self._render.summarizes:
                self._part("reasoning_summary_part.added", summary_part(""), "summary_index")
            else:
                self._part("content_part.added", reasoning_part(""))
        self._texts.append(text)
        name, place = self._reasoning_names()
        self._in_item(f"{name}.delta", **{place: 0, "delta": text})

    def _text(self, text: str) -> None:
        if not text:
            return
        if self._open != "text":
            self._close("completed")
            self._add("msg_", "text")
            self._send_item("added", message_item(self._item_id, [], "in_progress"))
            self._part("content_part.added", text_part("", []))
        self._texts.append(text)
        logprobs = logprob_objects(self._render, self._due)
        self._tokens += self._due
        self._due = []
        self._in_item("output_text.delta", content_index=0, delta=text, logprobs=logprobs)

    def _start_call(self, event: ToolCallStarted) -> None:
        self._space.end()
        self._close("completed")
        self._add("fc_", "call")
        self._call = event
        item = call_item(self._render, self._index, (event.id, event.name, ""), "in_progress")
        self._item_id = item["id"]
        self._send_item("added", item)

    def _arguments(self, text: str) -> None:
        if self._open != "call" or not text:
            return
        self._texts.append(text)
        if not self._is_custom():
            self._in_item("function_call_arguments.delta", delta=text)

    def _complete(self, event: TurnCompleted) -> None:
        status = status_of(event)
        space = self._space.end()
        if self._index < 0:
            self._text(space)  # the answer is nothing but white space
        self._close(status, is_kept=self._open != "call")
        body = response_object(self._render, status, self._output, event.usage)
        remember(self._render, body)
        self._send(f"response.{status}", response=body)

    # ---- the open item ----

    def _add(self, prefix: str, kind: str) -> None:
        self._index += 1
        self._open = kind
        self._item_id = self._render.item_id(prefix, self._index)
        self._texts = []
        self._tokens = []

    def _close(self, status: str, *, is_kept: bool = True) -> None:
        """End the open item, if there is one.

        Args:
            status: Of the item.
            is_kept: False for a call that broke off: it is no part of the answer.
        """
        kind, text = self._open, "".join(self._texts)
        if kind is None:
            return
        if kind == "reasoning":
            item = self._close_reasoning(text, status)
        elif kind == "text":
            item = self._close_text(text, status)
        else:
            item = self._close_call(text, status)
        self._send_item("done", item)
        self._open = None
        if is_kept:
            self._output.append(item)

    def _close_reasoning(self, text: str, status: str) -> dict[str, Any]:
        name, place = self._reasoning_names()
        self._in_item(f"{name}.done", **{place: 0, "text": text})
        if self._render.summarizes:
            self._part("reasoning_summary_part.done", summary_part(text), "summary_index")
        else:
            self._part("content_part.done", reasoning_part(text))
        return reasoning_item(self._render, self._item_id, text, status)

    def _close_text(self, text: str, status: str) -> dict[str, Any]:
        logprobs = logprob_objects(self._render, self._tokens)
        self._in_item("output_text.done", content_index=0, text=text, logprobs=logprobs)
        part = text_part(text, logprobs)
        self._part("content_part.done", part)
        return message_item(self._item_id, [part], status)

    def _close_call(self, arguments: str, status: str) -> dict[str, Any]:
        assert self._call is not None
        arguments = arguments or ("{}" if status == "completed" else "")
        call = (self._call.id, self._call.name, arguments)
        item = call_item(self._render, self._index, call, status)
        if self._is_custom():
            self._in_item("custom_tool_call_input.delta", delta=item["input"])
            self._in_item("custom_tool_call_input.done", input=item["input"])
        else:
            if not self._texts and arguments:
                self._in_item("function_call_arguments.delta", delta=arguments)
            self._in_item("function_call_arguments.done", arguments=item["arguments"])
        return item

    def _is_custom(self) -> bool:
        return self._call is not None and self._render.tools.origin(self._call.name).is_custom

    def _reasoning_names(self) -> tuple[str, str]:
        if self._render.summarizes:
            return "reasoning_summary_text", "summary_index"
        return "reasoning_text", "content_index"

    # ---- frames ----

    def _send_item(self, what: str, item: Item) -> None:
        self._send(f"response.output_item.{what}", output_index=self._index, item=item)

    def _part(self, event: str, part: dict[str, Any], place: str = "content_index") -> None:
        self._in_item(event, **{place: 0, "part": part})

    def _in_item(self, event: str, **data: Any) -> None:  # noqa: ANN401 - any JSON value
        self._send(f"response.{event}", item_id=self._item_id, output_index=self._index, **data)

    def _send(self, name: str, **data: Any) -> None:  # noqa: ANN401 - any JSON value
        body = {"type": name, "sequence_number": self._number, **data}
        self._frames.append(sse_frame(body, name))
        self._number += 1

    def _taken(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        return frames
