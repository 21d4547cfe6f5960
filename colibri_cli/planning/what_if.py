"""`--what-if ram=64,ctx=32768`: another machine or other settings, as one more plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import UsageError
from colibri_protocol.settings import SETTINGS, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

# Word -> the setting it stands for.
_SETTINGS: Final = {
    "ctx": "ctx",
    "slots": "kv_slots",
    "kv": "kv_dtype",
    "cap": "cap",
    "threads": "num_threads",
    "chunk": "prefill_chunk",
    "numerics": "numerics",
}
# Word -> what the job calls it; amounts in GB, of rates in GB/s.
_AMOUNTS: Final = {
    "ram": "ram_bytes",
    "memory": "memory_bytes_per_s",
    "disk": "disk_bytes_per_s",
}
_NUMBER: Final = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?(/s)?", re.IGNORECASE)
_UNITS: Final = {"": 1e9, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_LARGEST: Final = 1e15


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One `--what-if`.

    Args:
        label: As it was written.
        environment: Variables of the settings it changes.
        amounts: What the machine would have, by the job's names.
    """

    label: str
    environment: Mapping[str, str]
    amounts: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> WhatIf:
        """Return what a flag asks for.

        Raises:
            UsageError: a word is not known, or has no value that can be.
            SettingsError: a setting cannot have the value.
        """
        environment: dict[str, str] = {}
        amounts: dict[str, float] = {}
        seen: set[str] = set()
        for part in text.split(","):
            word, is_given, value = (piece.strip() for piece in part.partition("="))
            if not is_given or not value:
                raise UsageError(
                    f"--what-if {part.strip()!r} is not of the form NAME=VALUE",
                    hint="write for example --what-if ram=64,ctx=32768",
                )
            if word in seen:
                raise UsageError(
                    f"--what-if names {word} twice in {text!r}",
                    hint="give --what-if once for each plan",
                )
            seen.add(word)
            if word in _SETTINGS:
                setting = SETTINGS[_SETTINGS[word]]
                parsed = setting.parse(value, f"--what-if {word}")
                environment |= setting.written(parsed)
            elif word in _AMOUNTS:
                amounts[_AMOUNTS[word]] = _amount(word, value)
            else:
                raise _unknown(word)
        return cls(text.replace(" ", ""), environment, amounts)

    def body(self) -> dict[str, Any]:
        """Return what the job is told."""
        amounts: dict[str, Any] = dict(self.amounts)
        if "ram_bytes" in amounts:
            amounts["ram_bytes"] = int(amounts["ram_bytes"])
        return {"environment": dict(self.environment), **amounts}


def _amount(word: str, text: str) -> float:
    match = _NUMBER.fullmatch(text)
    is_rate = _AMOUNTS[word].endswith("_per_s")
    value = float(match[1]) * _UNITS[match[2].lower()] if match else 0.0
    if not 0 < value <= _LARGEST or (match is not None and match[3] and not is_rate):
        example = "7 or 7GB/s, in GB (10^9 bytes) per second" if is_rate else "64 or 64GB"
        raise UsageError(
            f"--what-if {word}: {text!r} is no amount of it", hint=f"write for example {example}"
        )
    return value


def _unknown(word: str) -> UsageError:
    known = [*_AMOUNTS, *_SETTINGS]
    near = nearest(word, set(known))
    hint = f"did you mean {near}? " if near else ""
    return UsageError(f"--what-if does not know {word!r}", hint=f"{hint}known: {', '.join(known)}")
