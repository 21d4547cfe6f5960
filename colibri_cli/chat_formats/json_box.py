"""The box of a syntax that writes calls as JSON objects: one, several, or a list of them.

And that of one that writes the name first, and only the arguments as an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from colibri_cli.chat_formats.call_parser import Verdict
from colibri_cli.chat_formats.json_calls import WHITE_SPACE, CallObject, JsonValue, object_text
from colibri_cli.chat_formats.markers import held_length
from colibri_cli.chat_formats.tool_formats.base import CallArguments, CallFinished, CallStarted
from colibri_cli.chat_formats.tool_schema import required_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.chat_formats.tool_formats.base import ToolEvent


@dataclass(frozen=True, slots=True)
class BoxForm:
    """What stands around the objects.

    Args:
        closer: The marker after them; empty if there is none.
        separators: Characters between objects outside a list.
        is_bare: No marker says that this is a call: only a complete call of a declared function
            is one.
    """

    closer: str = ""
    separators: str = ""
    is_bare: bool = False


class _Place(Enum):
    BEFORE = "before"
    OBJECT = "object"
    AFTER = "after"
    SKIPPING = "skipping"  # to the closer of a box that gives no (further) call


class JsonBox:
    """Reads one box.

    Args:
        form: What stands around the objects.
        schemas: Parameters of the declared functions, by name.
    """

    def __init__(self, form: BoxForm, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._form = form
        self._schemas = schemas
        self._place = _Place.BEFORE
        self._object = self._new_object()
        self._is_list = False
        self._has_calls = False
        self._verdict = Verdict.READING
        self._final = Verdict.BROKEN  # of a box that is skipped
        self._steps = {
            _Place.BEFORE: self._read_before,
            _Place.OBJECT: self._read_object,
            _Place.AFTER: self._read_after,
            _Place.SKIPPING: self._read_skipping,
        }

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the box; stops after each call."""
        place = 0
        events: list[ToolEvent] = []
        while place < len(text) and self._verdict is Verdict.READING and not events:
            used = self._steps[self._place](text[place:], events)
            if used is None:
                break
            place += used
        return place, events, self._verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the box that the answer left open."""
        del unread  # a part of a marker
        if self._place is _Place.SKIPPING:
            return [], self._final
        if self._place is _Place.BEFORE:
            return [], Verdict.DONE if self._has_calls else Verdict.TEXT
        if self._place is _Place.AFTER:
            return [], Verdict.DONE
        schema = self._schemas.get(self._object.name or "")
        if schema is None:
            return [], Verdict.BROKEN  # an undeclared function is believed only in a whole box
        events = self._object.finish(None if was_cut else required_names(schema))
        return events, Verdict.DONE if self._object.is_complete else Verdict.BROKEN

    def _read_before(self, text: str, events: list[ToolEvent]) -> int | None:
        del events
        rest = text.lstrip(WHITE_SPACE)
        space = len(text) - len(rest)
        closer = self._form.closer
        if not rest:
            return space
        if rest[0] == "{":
            self._place = _Place.OBJECT
            self._object = self._new_object()
        elif rest[0] == "[" and not self._is_list and not self._form.is_bare:
            self._is_list = True
            return space + 1
        elif rest[0] == "]" and self._is_list:
            self._is_list = False
            self._place = _Place.AFTER
            return space + 1
        elif closer and rest.startswith(closer) and not self._is_list:
            self._verdict = Verdict.DROPPED
            return space + len(closer)
        elif closer and closer.startswith(rest):
            return None
        else:
            self._verdict = Verdict.DONE if self._has_calls else Verdict.TEXT
        return space

    def _read_object(self, text: str, events: list[ToolEvent]) -> int | None:
        used, found = self._object.feed(text)
        events += found
        if self._object.is_complete:
            self._has_calls = True
            self._place = _Place.AFTER
            if not (self._is_list or self._form.closer or self._form.separators):
                self._verdict = Verdict.DONE
        elif self._object.is_broken:
            self._give_up()
        return used

    def _give_up(self) -> None:
        is_nameless = self._object.name == ""
        if self._form.closer and (self._object.is_started or is_nameless):
            self._final = Verdict.DROPPED if is_nameless else Verdict.BROKEN
            self._place = _Place.SKIPPING
        else:
            self._verdict = Verdict.BROKEN if self._object.is_started else Verdict.TEXT

    def _read_after(self, text: str, events: list[ToolEvent]) -> int | None:
        del events
        rest = text.lstrip(WHITE_SPACE)
        space = len(text) - len(rest)
        closer = self._form.closer
        if not rest:
            return None
        if self._is_list:
            if rest[0] == "]":
                self._is_list = False
            else:
                self._place = _Place.BEFORE
            return space + (1 if rest[0] in ",]" else 0)
        if rest[0] in self._form.separators or (self._form.separators and rest[0] == "{"):
            self._place = _Place.BEFORE
            return space + (0 if rest[0] == "{" else 1)
        if closer and rest.startswith(closer):
            self._verdict = Verdict.DONE
            return space + len(closer)
        if closer and closer.startswith(rest):
            return None
        if closer and rest[0] == "}":
            return space + 1  # one brace too many, as models write it
        self._verdict = Verdict.DONE
        return 0

    def _read_skipping(self, text: str, events: list[ToolEvent]) -> int | None:
        del events
        before, closer, _ = text.partition(self._form.closer)
        if closer:
            self._verdict = self._final
            return len(before) + len(closer)
        return (len(before) - held_length(before, (self._form.closer,))) or None

    def _new_object(self) -> CallObject:
        if not self._form.is_bare:
            return CallObject()
        first_keys = ("name", "type", "parameters", "arguments")
        return CallObject(first_keys=first_keys, names=[*self._schemas], needs_arguments=True)


class NamedArguments:
    """Reads the arguments of a call whose name is known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_started = False
        self._value = JsonValue()
        self._text: list[str] = []

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the object; the call begins at once."""
        events: list[ToolEvent] = []
        if not self._is_started:
            self._is_started = True
            events.append(CallStarted(self.name))
        used, piece = self._value.feed(text)
        if not self._text and piece and piece[0] != "{":
            return 0, events, Verdict.BROKEN
        if piece:
            self._text.append(piece)
            events.append(CallArguments(piece))
        if not self._value.is_complete:
            return used, events, Verdict.READING
        if object_text("".join(self._text)) is None:
            return used, events, Verdict.BROKEN
        return used, [*events, CallFinished()], Verdict.DONE

    def finish(self, *, may_be_empty: bool) -> tuple[list[ToolEvent], Verdict]:
        """End a call that the answer left open.

        Args:
            may_be_empty: Arguments that never began are none.
        """
        if may_be_empty and not self._text:
            begin: list[ToolEvent] = [] if self._is_started else [CallStarted(self.name)]
            return [*begin, CallArguments("{}"), CallFinished()], Verdict.DONE
        return [], Verdict.BROKEN
