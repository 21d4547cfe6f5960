"""Plain pieces of text around an answer: safe characters, the statistics line, why it was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colibri_cli.backends.base import Completed
    from colibri_protocol.errors import ColibriError

_KEPT_CONTROLS = frozenset("\n\t")


def visible(text: str) -> str:
    """Return text without characters that would steer the terminal (escape codes and such)."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in _KEPT_CONTROLS or not _is_control(c))


def error_lines(error: ColibriError, usual_hint: str | None = None) -> list[str]:
    """Return what went wrong, the last words of an engine that died, and what to do.

    Args:
        error: What happened.
        usual_hint: What to do where the error itself says nothing about it.
    """
    lines = [visible(error.message)]
    lines += [f"  | {visible(line)}" for line in getattr(error, "stderr_tail", ())]
    hint = error.hint or usual_hint
    return [*lines, f"  {visible(hint)}"] if hint else lines


def statistics_line(done: Completed, *, has_experts: bool = True) -> str:
    """Return `prompt → tokens · tok/s · hit % · RSS · s · TTFT` of one answer.

    Args:
        done: Its figures; a server that is left before the end has not told the prompt's tokens.
        has_experts: Whether there is anything to hit.
    """
    prompt = f"{done.prompt_tokens} → " if done.prompt_tokens else ""
    parts = [
        f"{prompt}{done.completion_tokens} token{'' if done.completion_tokens == 1 else 's'}",
        f"{done.tokens_per_second:.2f} tok/s",
    ]
    if done.rss_gb > 0:  # a server does not tell
        parts += [f"hit {done.hit_percent:.0f} %"] if has_experts else []
        parts.append(f"RSS {done.rss_gb:.2f} GB")
    parts.append(_seconds(done.total_s))
    if done.first_token_s is not None:
        parts.append(f"TTFT {_seconds(done.first_token_s)}")
    if done.reused_tokens:
        parts.append(f"{done.reused_tokens} reused")
    return " · ".join(parts)


def cut_notice(done: Completed, context_length: int | None) -> str | None:
    """Return why an answer was cut off and which setting decides, or None if it is whole."""
    if done.finish != "length":
        return None
    used = done.prompt_tokens + done.completion_tokens
    if context_length is not None and used >= context_length:
        return f"cut off: the context of {context_length} tokens is full (--ctx or COLI_CTX)"
    return (
        f"cut off after {done.completion_tokens} tokens"
        " (--max-tokens or COLI_MAX_TOKENS sets the limit)"
    )


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or code in {0x2028, 0x2029} or _is_override(code)


def _is_override(code: int) -> bool:
    """Whether a character changes the direction of the text around it."""
    return 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
