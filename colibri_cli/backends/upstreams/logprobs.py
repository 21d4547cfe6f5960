"""Log-probabilities as servers of the OpenAI API write them, in both of its shapes."""

from __future__ import annotations

from typing import Any, Final

from colibri_protocol.messages import TokenAlternative, TokenLogprobs

_NO_ID: Final = -1  # the API tells texts, not ids
_UNLIKELY: Final = -9999.0  # what servers of the API say where there is no number


def logprobs_of(value: object) -> tuple[TokenLogprobs, ...]:
    """Return the tokens of a choice's `logprobs`; empty for anything that is none."""
    if not isinstance(value, dict):
        return ()
    if isinstance(content := value.get("content"), list):
        return tuple(_chat_token(token) for token in content if isinstance(token, dict))
    tokens, numbers = value.get("tokens"), value.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(numbers, list):
        return ()
    tops = value.get("top_logprobs") or [None] * len(tokens)
    return tuple(
        TokenLogprobs(0, _NO_ID, _number(number), str(token).encode(), _of_map(top))
        for token, number, top in zip(tokens, numbers, tops, strict=False)
    )


def _chat_token(token: dict[str, Any]) -> TokenLogprobs:
    top = token.get("top_logprobs") or ()
    return TokenLogprobs(
        0,
        _NO_ID,
        _number(token.get("logprob")),
        _bytes(token),
        tuple(
            TokenAlternative(_NO_ID, _number(one.get("logprob")), _bytes(one))
            for one in top
            if isinstance(one, dict)
        ),
    )


def _of_map(top: object) -> tuple[TokenAlternative, ...]:
    if not isinstance(top, dict):
        return ()
    return tuple(
        TokenAlternative(_NO_ID, _number(number), str(text).encode())
        for text, number in top.items()
    )


def _bytes(token: dict[str, Any]) -> bytes:
    """Return a token's bytes, which a text cannot tell where a character is cut."""
    codes = token.get("bytes")
    if isinstance(codes, list) and all(isinstance(c, int) and 0 <= c < 256 for c in codes):
        return bytes(codes)
    return str(token.get("token", "")).encode()


def _number(value: object) -> float:
    return min(float(value), 0.0) if isinstance(value, int | float) else _UNLIKELY
