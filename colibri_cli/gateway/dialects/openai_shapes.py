"""JSON shapes that the OpenAI endpoints share: usage, ends, log-probabilities, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.turns import Finish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.gateway.turns import TokenLogprob, TurnCompleted, Usage

FINISH_WORDS: Final = {
    Finish.STOP: "stop",
    Finish.STOP_SEQUENCE: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
}


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return the tokens of an answer."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def chat_logprobs(tokens: Sequence[TokenLogprob], num_top: int) -> dict[str, Any]:
    """Return the log-probabilities of a chat choice, `num_top` alternatives each."""
    return {
        "content": [
            {
                **_token(token.text, token.token_bytes, token.logprob),
                "top_logprobs": [
                    _token(text, raw, logprob) for text, raw, logprob in token.top[:num_top]
                ],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def legacy_logprobs(
    tokens: Sequence[TokenLogprob], num_top: int, offset: int = 0
) -> dict[str, Any]:
    """Return the log-probabilities of a legacy choice; `offset` is that of the first token."""
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    top = [{text: logprob for text, _, logprob in token.top[:num_top]} for token in tokens]
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": top if num_top else None,
        "text_offset": offsets,
    }


def telemetry_body(completed: Sequence[TurnCompleted], queue_wait_ms: int | None) -> dict[str, Any]:
    """Return the figures of a turn, as asked for with `x_colibri_telemetry`."""
    stats = [
        {
            "prompt_tokens": one.usage.prompt_tokens,
            "completion_tokens": one.usage.completion_tokens,
            "reused_tokens": one.usage.reused_tokens,
            "tokens_per_second": one.tokens_per_second,
            "hit_percent": one.hit_percent,
            "rss_gb": one.rss_gb,
            "length_limited": one.finish is Finish.LENGTH,
        }
        for one in completed
    ]
    body: dict[str, Any] = {"stats": stats[0] if len(stats) == 1 else stats}
    if queue_wait_ms is not None:
        body["queue_wait_ms"] = queue_wait_ms
    return body


def _token(text: str, raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(raw)}
