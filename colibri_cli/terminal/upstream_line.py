"""The server behind in one line: what it is, and as much as it tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli.wrapping import flowed

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDE: Final = 100
_GAP: Final = " · "


def upstream_line(health: Mapping[str, Any], width: int = _WIDE) -> Text | None:
    """Return the line; None where the engine is of the server itself.

    Args:
        health: The answer of `/health`.
        width: Columns there are; where they are few, it takes several lines.
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
    rows = flowed(words, width, _GAP)
    return Text("\n".join(_GAP.join(words[index] for index in row) for row in rows))
