"""The server behind in one line: what it is, and as much as it tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping


def upstream_line(health: Mapping[str, Any]) -> Text | None:
    """Return the line; None where the engine is of the server itself.

    Args:
        health: The answer of `/health`.
    """
    upstream = health.get("upstream")
    if not isinstance(upstream, dict):
        return None
    words = [f"upstream {upstream['server']} at {upstream['url']}"]
    words += [
        f"{word} {upstream[name]}"
        for name, word in (("running", "running"), ("waiting", "waiting"))
        if upstream.get(name) is not None
    ]
    if (usage := upstream.get("kv_usage")) is not None:
        words.append(f"KV cache {usage:.0%}")
    if (rate := upstream.get("decode_rate")) is not None:
        words.append(f"{rate:.1f} tok/s")
    if (ratio := upstream.get("hit_ratio")) is not None:
        words.append(f"prefix hits {ratio:.0%}")
    return Text(" · ".join(words))
