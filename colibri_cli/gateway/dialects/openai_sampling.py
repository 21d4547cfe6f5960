"""What both OpenAI text endpoints share: from checked fields to how one request generates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colibri_cli.backends.base import Generation
from colibri_cli.gateway.dialects.base import new_id
from colibri_cli.gateway.dialects.fields import UNSUPPORTED_VALUE, refusal
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.services import ServeSettings

_MAX_SEED_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIRender:
    """What an answer of the OpenAI text endpoints needs besides its events.

    Args:
        id: Id of the answer.
        created: Unix seconds.
        model: The served name.
        num_choices: Answers that will come.
        has_tools: Tools were offered, so that an empty text is no content at all.
        include_usage: The stream ends with a usage chunk.
        num_logprobs: Alternatives wanted per token; None: no log-probabilities.
        has_telemetry: Figures of the turn are wanted.
        keepalive: Reasoning of a sign of life.
    """

    id: str
    created: int
    model: str
    num_choices: int = 1
    has_tools: bool = False
    include_usage: bool = False
    num_logprobs: int | None = None
    has_telemetry: bool = False
    keepalive: str = ""


def render_of(
    prefix: str,
    values: Mapping[str, Any],
    settings: ServeSettings,
    **extra: Any,  # noqa: ANN401
) -> OpenAIRender:
    """Return the render options of a request with these field values."""
    return OpenAIRender(
        id=new_id(prefix, 32),
        created=int(time.time()),
        model=settings.model_id,
        num_choices=values["n"],
        include_usage=bool(values["stream_options"]),
        has_telemetry=values["x_colibri_telemetry"],
        keepalive="." if settings.has_visible_keepalive else "",
        **extra,
    )


def generation_of(
    values: Mapping[str, Any], settings: ServeSettings, num_logprobs: int | None
) -> Generation:
    """Return how to generate, from the checked fields of a body."""
    seed, top_k = values["seed"], values["top_k"]
    options = RequestOptions(
        max_tokens=settings.limited(values["max_completion_tokens"] or values["max_tokens"]),
        temperature=_or(values["temperature"], settings.temperature),
        top_p=_or(values["top_p"], settings.top_p),
        top_k=None if top_k is None else max(top_k, 0),
        min_p=values["min_p"],
        repetition_penalty=values["repetition_penalty"],
        frequency_penalty=values["frequency_penalty"] or 0.0,
        presence_penalty=values["presence_penalty"] or 0.0,
        logit_bias=values["logit_bias"] or {},
        seed=None if seed is None else seed % 2**_MAX_SEED_BITS,  # negative ones too are distinct
        logprobs=num_logprobs,
    )
    return Generation(options, values["stop"] or ())


def check_slots(values: Mapping[str, Any], settings: ServeSettings) -> None:
    """Check the fields whose range is the number of slots.

    Raises:
        HttpError: 400 naming the field.
    """
    slot, count = values["cache_slot"], values["n"]
    if slot is not None and slot >= settings.kv_slots:
        raise refusal(
            "cache_slot",
            f"cache_slot must be in 0..{settings.kv_slots - 1}, not {slot}: the server has"
            f" {settings.kv_slots} slots (--kv-slots)",
        )
    if count > settings.kv_slots:
        raise refusal(
            "n",
            f"n must be in 1..{settings.kv_slots}, not {count}: each answer needs a slot of its"
            " own (--kv-slots)",
            UNSUPPORTED_VALUE,
        )
    if slot is not None and count > 1:
        raise refusal(
            "cache_slot", f"cache_slot names one slot and n asks for {count}; leave one of them out"
        )


def check_stream_options(values: Mapping[str, Any]) -> None:
    """Refuse options of a stream that is not wanted.

    Raises:
        HttpError: 400 naming `stream_options`.
    """
    if values["stream_options"] is not None and not values["stream"]:
        raise refusal("stream_options", "stream_options is only allowed with stream: true")


def _or(value: float | None, default: float | None) -> float | None:
    return default if value is None else value
