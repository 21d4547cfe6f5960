"""Reading calls written as JSON objects while they stream in.

Arguments are passed on as they come, without white space between tokens, once the name is known.
Only brackets and quotes are followed on the way; a call counts when the whole is valid JSON.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from colibri_cli.chat_formats.tool_formats.base import (
    CallArguments,
    CallFinished,
    CallStarted,
    ToolEvent,
)
from colibri_cli.chat_formats.tool_schema import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

WHITE_SPACE: Final = " \t\r\n"
_NAME_KEYS: Final = frozenset({"name"})
_ARGUMENT_KEYS: Final = frozenset({"arguments", "parameters", "args"})


class JsonValue:
    """One JSON value, passed through piece by piece."""

    def __init__(self) -> None:
        self.is_complete = False
        self._depth = 0
        self._in_text = False
        self._is_escaped = False
        self._is_bare = False  # a number or a word outside brackets
        self._after_token = False
        self._has_gap = False

    def feed(self, text: str) -> tuple[int, str]:
        """Return how many characters belong to the value, and those to pass on."""
        passed: list[str] = []
        for place, character in enumerate(text):
            if self._in_text:
                self._in_quotes(character, passed)
                if self.is_complete:
                    return place + 1, "".join(passed)
            elif self._ends_bare(character):
                self.is_complete = True
                return place, "".join(passed)
            elif character in WHITE_SPACE:
                self._has_gap = True
            else:
                self._outside_quotes(character, passed)
                if self.is_complete:
                    return place + 1, "".join(passed)
        return len(text), "".join(passed)

    def _ends_bare(self, character: str) -> bool:
        if self._depth:
            return False
        return character in ",:}]" or (self._is_bare and character in WHITE_SPACE + '"{[')

    def _in_quotes(self, character: str, passed: list[str]) -> None:
        if character < " ":
            character = json.dumps(character)[1:-1]  # models write line breaks into strings
        passed.append(character)
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_text = False
            self._after_token = True
            self.is_complete = self._depth == 0

    def _outside_quotes(self, character: str, passed: list[str]) -> None:
        is_token = character not in "{}[],:"
        if is_token and self._has_gap and self._after_token:
            passed.append(" ")  # two tokens in a row are no JSON and must not become one
        self._after_token = is_token and character != '"'
        self._has_gap = False
        passed.append(character)
        if character == '"':
            self._in_text = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.is_complete = self._depth == 0
        elif is_token and not self._depth:
            self._is_bare = True


class _Place(Enum):
    START = "start"
    KEY = "key"
    COLON = "colon"
    VALUE = "value"
    COMMA = "comma"


class CallObject:
    """One `{"name": …, "arguments": {…}}`; keys in any order, unknown keys ignored.

    Args:
        first_keys: If given, an object that begins with another key is no call.
        names: If given, an object with another name is no call.
        needs_arguments: An object without arguments is no call.
    """

    def __init__(
        self,
        *,
        first_keys: Sequence[str] = (),
        names: Sequence[str] | None = None,
        needs_arguments: bool = False,
    ) -> None:
        self.is_complete = False
        self.is_broken = False
        self._first_keys = first_keys
        self._names = names
        self._needs_arguments = needs_arguments
        self._place = _Place.START
        self._is_first = True
        self._key = ""
        self._value = JsonValue()
        self._text: list[str] = []
        self._name: str | None = None
        self._arguments: list[str] = []
        self._has_arguments = False
        self._are_arguments_complete = False
        self._is_passing = False
        self.is_started = False
        self._events: list[ToolEvent] = []

    @property
    def name(self) -> str | None:
        """The function, once it is known; the empty text is no name."""
        return self._name

    def feed(self, text: str) -> tuple[int, list[ToolEvent]]:
        """Return how many characters were used, up to the object's end, and what they gave."""
        place = 0
        while place < len(text) and not (self.is_complete or self.is_broken):
            if self._place is _Place.VALUE:
                place += self._read_value(text[place:])
            elif self._place is _Place.KEY and (self._text or text[place] == '"'):
                place += self._read_key(text[place:])
            elif text[place] in WHITE_SPACE:
                place += 1
            else:
                place += self._read_mark(text[place])
        return place, self._taken()

    def finish(self, needed: Sequence[str] | None) -> list[ToolEvent]:
        """End an object that the answer left open; a call only if all arguments were complete.

        Args:
            needed: Parameters that a call without arguments lacks; None: no such call is made.
        """
        lacks_nothing = needed is not None and not needed and not self._has_arguments
        if self._place is not _Place.COMMA or not (self._are_arguments_complete or lacks_nothing):
            self.is_broken = True
        else:
            self._end()
        return self._taken()

    def _read_mark(self, character: str) -> int:
        expected = {_Place.START: "{", _Place.COLON: ":", _Place.COMMA: ","}.get(self._place)
        if character == expected:
            following = {
                _Place.START: _Place.KEY,
                _Place.COLON: _Place.VALUE,
                _Place.COMMA: _Place.KEY,
            }
            self._place = following[self._place]
            self._value = JsonValue()
            self._text = []
        elif character == "}" and self._place in {_Place.KEY, _Place.COMMA}:
            self._end()
        else:
            self.is_broken = True
            return 0
        return 1

    def _read_key(self, text: str) -> int:
        used, piece = self._value.feed(text)
        self._text.append(piece)
        if self._value.is_complete:
            self._key = _text_of("".join(self._text)) or ""
            self._place = _Place.COLON
            if self._is_first and self._first_keys and self._key not in self._first_keys:
                self.is_broken = True
            self._is_first = False
        return used

    def _read_value(self, text: str) -> int:
        used, piece = self._value.feed(text)
        is_arguments = self._key in _ARGUMENT_KEYS and not self._are_arguments_complete
        if piece:
            self._text.append(piece)
            if is_arguments:
                self._take_arguments(piece)
        if self._value.is_complete:
            value = "".join(self._text)
            self._text = []
            self._place = _Place.COMMA
            if not value:
                self.is_broken = True
            elif is_arguments:
                self._end_arguments(value)
            elif self._key in _NAME_KEYS and self._name is None:
                self._take_name(_text_of(value))
        return used

    def _take_name(self, name: str | None) -> None:
        if not name or (self._names is not None and name not in self._names):
            self._name = name
            self.is_broken = True
            return
        self._name = name
        if self._has_arguments:
            self._start()
            for piece in self._arguments:
                self._events.append(CallArguments(piece))

    def _take_arguments(self, piece: str) -> None:
        """Pass a piece of an object on; other values wait until they are complete."""
        if len(self._text) == 1:
            self._has_arguments = True
            self._is_passing = piece[0] == "{"
            if self._is_passing:
                self._start()
        if self._is_passing:
            self._arguments.append(piece)
            if self.is_started:
                self._events.append(CallArguments(piece))

    def _end_arguments(self, value: str) -> None:
        self._are_arguments_complete = True
        if self._is_passing:
            self.is_broken = object_text(value) is None
            return
        inner = value if value.startswith("{") else _text_of(value)
        body = "{}" if value == "null" or inner == "" else object_text(inner or "")
        if body is None:
            self.is_broken = True
            return
        self._arguments.append(body)
        if self._name is not None:
            self._start()
            self._events.append(CallArguments(body))

    def _start(self) -> None:
        if self._name is not None and not self.is_started:
            self.is_started = True
            self._events.append(CallStarted(self._name))

    def _end(self) -> None:
        if self._name is None or (self._needs_arguments and not self._has_arguments):
            self.is_broken = True
            return
        if not self.is_started:
            self._start()
            self._events.append(CallArguments("{}"))
        self._events.append(CallFinished())
        self.is_complete = True

    def _taken(self) -> list[ToolEvent]:
        events, self._events = self._events, []
        return events


def _text_of(value: str) -> str | None:
    """Return the text of a JSON string, or None if it is none."""
    try:
        text = json.loads(value)
    except ValueError:
        return None
    return text if isinstance(text, str) else None


def object_text(value: str) -> str | None:
    """Return a JSON object in compact form, or None if it is none."""
    try:
        body = json.loads(value, parse_constant=_refuse)
        return compact_json(body) if isinstance(body, dict) else None
    except (ValueError, RecursionError):
        return None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
