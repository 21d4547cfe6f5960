"""One row of the settings table: its type, its range, and how text becomes its value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

SettingValue = str | int | float | bool | None

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_NO_LIMIT: Final = 2**30  # a bound above this only guards against overflow
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")


def _plain(number: float) -> str:
    """Return a bound without an exponent."""
    return str(int(number)) if number == int(number) else f"{number:g}"


def _no_words() -> Mapping[str, Mapping[str, str]]:
    return {}


class Kind(StrEnum):
    """Type of a setting's value."""

    TEXT = "text"
    PATH = "path"
    INTEGER = "whole number"
    NUMBER = "number"
    SWITCH = "switch"
    CHOICE = "choice"


class Scope(StrEnum):
    """Who reads a setting; the command line hands those of `both` on to the engine."""

    CLI = "cli"
    ENGINE = "engine"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Args:
        name: Its name in the configuration file and in code.
        kind: Type of its value.
        help: One sentence for `--help` and the settings page.
        scope: Who reads it.
        env: Environment variables, the preferred first; the first that is set counts.
        flags: Options of the command line, the preferred first.
        default: Value when nobody sets it.
        default_text: What the default means, where the value does not say it.
        low: Least value of a number.
        high: Greatest value of a number.
        low_open: Whether `low` itself is excluded.
        choices: Allowed words of a choice.
        words: By variable of another program's, its own words and what they mean here.
    """

    name: str
    kind: Kind
    help: str
    scope: Scope
    env: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    default: SettingValue = None
    default_text: str = ""
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    choices: tuple[str, ...] = ()
    words: Mapping[str, Mapping[str, str]] = field(default_factory=_no_words, hash=False)

    @property
    def allowed(self) -> str:
        """Describe the allowed values: "a number in 0..2"."""
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.SWITCH:
            return "1 or 0"
        words = f"a {self.kind.value}"
        if self.low is None:
            return words
        if self.high is None or self.high > _NO_LIMIT:
            return f"{words} of at least {_plain(self.low)}"
        if self.low_open:
            return f"{words} above {_plain(self.low)} and at most {_plain(self.high)}"
        return f"{words} in {_plain(self.low)}..{_plain(self.high)}"

    def parse(self, text: str, source: str) -> SettingValue:
        """Turn text into a value.

        Args:
            text: As written by the user.
            source: The variable, flag or file, for the message.

        Raises:
            SettingsError: Naming the value, the source and the remedy.
        """
        word = text.strip()
        if source in self.words:
            return self._translated(word, source)
        if source == "OMP_NUM_THREADS":  # may list one count per nesting level
            word = word.split(",")[0]
        lowered = word.lower()
        value: SettingValue = word
        if self.kind is Kind.INTEGER and _INTEGER.fullmatch(word):
            value = int(word)
        elif self.kind is Kind.NUMBER and _NUMBER.fullmatch(word):
            value = float(word)
        elif self.kind is Kind.SWITCH and lowered in _TRUE | _FALSE:
            value = lowered in _TRUE
        elif self.kind is Kind.CHOICE:
            value = lowered
        checked = self._checked(value)
        if checked is None:
            raise self._refusal(text, source)
        return checked

    def _translated(self, word: str, source: str) -> SettingValue:
        """Return what a word of another program's variable means."""
        words = self.words[source]
        if word not in words:
            allowed = " or ".join(words)
            raise SettingsError(
                f"{source}: {word[:60]!r} is not {allowed}",
                setting=self.name,
                source=source,
                hint=f"set {source} to {allowed}, or leave it out",
            )
        return words[word]

    def written(self, value: SettingValue) -> dict[str, str]:
        """Return the variables that hand a value on, each in the words of its own."""
        text = str(int(value)) if isinstance(value, bool) else str(value)
        found: dict[str, str] = {name: text for name in self.env if name not in self.words}
        for variable, words in self.words.items():
            for word, meaning in words.items():
                if meaning == text:
                    found[variable] = word
        return found

    def check(self, value: object, source: str) -> SettingValue:
        """Return a typed value (of a flag or a configuration file) after checking it.

        Raises:
            SettingsError: Naming the value, the source and the remedy.
        """
        checked = self._checked(value)
        if checked is None:
            raise self._refusal(value, source)
        return checked

    def _checked(self, value: object) -> SettingValue:
        """Return the value in the setting's type, or None when it is not allowed."""
        if isinstance(value, bool):
            return value if self.kind is Kind.SWITCH else None
        if isinstance(value, int | float) and self._fits(value):
            if self.kind is Kind.NUMBER:
                return float(value)
            return value if self.kind is Kind.INTEGER and isinstance(value, int) else None
        return value if isinstance(value, str) and self._is_allowed_text(value) else None

    def _is_allowed_text(self, value: str) -> bool:
        if self.kind is Kind.CHOICE:
            return value in self.choices
        if self.kind in {Kind.TEXT, Kind.PATH}:
            is_path = self.kind is Kind.PATH
            return value != "" and "\0" not in value and not (is_path and _is_homeless(value))
        return False

    def _fits(self, value: float) -> bool:
        if not -math.inf < value < math.inf:  # also false for NaN
            return False
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value <= self.high

    def _refusal(self, value: object, source: str) -> SettingsError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        if self.kind is Kind.PATH and isinstance(value, str) and _is_homeless(value):
            return SettingsError(
                f"{source}: {shown} is in the home directory of nobody",
                setting=self.name,
                source=source,
                hint="write the path out, from / on",
            )
        allowed = self.allowed
        if self._is_too_large(value):
            allowed += f" and at most {self.high:.0f}"
        return SettingsError(
            f"{source}: {shown} is not {allowed}",
            setting=self.name,
            source=source,
            hint=f"set {source} to {allowed}, or leave it out",
        )

    def _is_too_large(self, value: object) -> bool:
        """Return whether a value is above a bound that `allowed` leaves out."""
        if self.high is None or self.high <= _NO_LIMIT:
            return False
        try:
            return float(str(value)) > self.high
        except ValueError:
            return False


def _is_homeless(path: str) -> bool:
    """Return whether a path is in the home directory of a user whom the system does not know."""
    try:
        Path(path).expanduser()
    except RuntimeError:
        return True
    return False
