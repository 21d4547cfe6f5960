"""The dialect of `/v1/completions`: a plain text to be continued, no template, no reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import (
    ParsedRequest,
    WholeAnswer,
    WholeChoice,
    check_model,
    compact_json,
    session_key_of,
)
from colibri_cli.gateway.dialects.fields import read_fields
from colibri_cli.gateway.dialects.openai_fields import COMPLETION_FIELDS
from colibri_cli.gateway.dialects.openai_format import parse_response_format
from colibri_cli.gateway.dialects.openai_sampling import (
    OpenAIRender,
    check_slots,
    check_stream_options,
    generation_of,
    render_of,
)
from colibri_cli.gateway.dialects.openai_shapes import (
    FINISH_WORDS,
    legacy_logprobs,
    telemetry_body,
    usage_body,
)
from colibri_cli.gateway.dialects.openai_stream import ChunkStream
from colibri_cli.gateway.problems import render_openai_error as render_error
from colibri_cli.gateway.turns import TextPiece, TurnRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served, StreamRenderer
    from colibri_cli.gateway.turns import TurnEvent

__all__ = ["open_stream", "parse_request", "render_error", "render_whole"]

_ID_PREFIX: Final = "cmpl-"
_OBJECT: Final = "text_completion"


def parse_request(
    body: Mapping[str, Any], served: Served, headers: Mapping[str, str]
) -> ParsedRequest[OpenAIRender]:
    """Check a body and return what it asks for.

    Raises:
        HttpError: 400 naming the field, 404 for a model that is not served.
    """
    settings = served.settings
    check_model(body, settings)
    values = read_fields(COMPLETION_FIELDS, body, served)
    check_stream_options(values)
    check_slots(values, settings)
    num_logprobs: int | None = values["logprobs"]
    turn = TurnRequest(
        prompt=values["prompt"],
        generation=generation_of(values, settings, num_logprobs),
        response_format=parse_response_format(values["response_format"], served),
        num_choices=values["n"],
        cache_slot=values["cache_slot"],
        session_key=session_key_of(body, headers),
        ignore_leading_stop=values["x_colibri_ignore_leading_stop"],
    )
    render = render_of(_ID_PREFIX, values, settings, num_logprobs=num_logprobs)
    return ParsedRequest(turn, values["stream"], render)


def render_whole(parsed: ParsedRequest[OpenAIRender], answer: WholeAnswer) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    render = parsed.render
    body: dict[str, Any] = {
        "id": render.id,
        "object": _OBJECT,
        "created": render.created,
        "model": render.model,
        "choices": [_choice(index, one, render) for index, one in enumerate(answer.choices)],
        "usage": usage_body(answer.usage),
    }
    if render.has_telemetry:
        wait = answer.accepted.queue_wait_ms if answer.accepted is not None else None
        completed = [one.completed for one in answer.choices if one.completed is not None]
        body["colibri"] = telemetry_body(completed, wait)
    return body


def open_stream(parsed: ParsedRequest[OpenAIRender]) -> StreamRenderer:
    """Return the writer of a streamed answer."""
    return CompletionStream(parsed.render)


class CompletionStream(ChunkStream):
    """Writes one completion; reasoning has no place here."""

    def __init__(self, render: OpenAIRender) -> None:
        super().__init__(render, _OBJECT)
        self._offsets = [0] * render.num_choices

    def piece(self, event: TurnEvent) -> list[bytes]:
        """Return the chunk of a text."""
        return [self._text(event.choice, event.text)] if isinstance(event, TextPiece) else []

    def finish(self, choice: int, word: str) -> bytes:
        """Return the last chunk of a choice."""
        return self._text(choice, "", word)

    def keepalive(self) -> list[bytes]:
        """Return a chunk that adds nothing."""
        return [self.chunk(compact_json(_choice_body(0, "", None, None)))]

    def _text(self, choice: int, text: str, finish: str | None = None) -> bytes:
        logprobs, tokens = None, self.take_logprobs(choice)
        if tokens and self.render.num_logprobs is not None:
            logprobs = legacy_logprobs(tokens, self.render.num_logprobs, self._offsets[choice])
            self._offsets[choice] += sum(len(token.text) for token in tokens)
        return self.chunk(compact_json(_choice_body(choice, text, logprobs, finish)))


def _choice(index: int, choice: WholeChoice, render: OpenAIRender) -> dict[str, Any]:
    assert choice.completed is not None
    logprobs = None
    if render.num_logprobs is not None:
        logprobs = legacy_logprobs(choice.logprobs, render.num_logprobs)
    return _choice_body(index, choice.text, logprobs, FINISH_WORDS[choice.completed.finish])


def _choice_body(
    index: int, text: str, logprobs: dict[str, Any] | None, finish: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
