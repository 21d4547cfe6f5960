"""The section of a syntax that marks each call: a head that names the function, then its arguments.

What a head looks like is the syntax's business; the arguments are one JSON object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colibri_cli.chat_formats.call_parser import Verdict
from colibri_cli.chat_formats.json_box import NamedArguments
from colibri_cli.chat_formats.markers import held_length, is_start
from colibri_cli.chat_formats.tool_schema import required_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.chat_formats.tool_formats.base import ToolEvent


@dataclass(frozen=True, slots=True)
class SectionForm:
    """What stands in a section besides arguments.

    Args:
        call: The marker before each call.
        call_ends: What may follow the arguments of one.
        close: The marker that closes the section.
        read_head: From what follows `call` to the length of the head and the function it names:
            length 0 while it is incomplete, None for no name.
    """

    call: str
    call_ends: tuple[str, ...]
    close: str
    read_head: Callable[[str], tuple[int, str | None]]


class CallSection:
    """Reads one section.

    Args:
        form: How the syntax writes it.
        schemas: Parameters of the declared functions, by name.
    """

    def __init__(self, form: SectionForm, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._form = form
        self._schemas = schemas
        self._call: NamedArguments | None = None
        self._has_calls = False
        self._is_broken = False  # the rest of the section is no text

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the section; stops after each call."""
        if self._is_broken:
            return self._skip(text)
        place = 0
        while self._call is None:
            used, verdict = self._read_between(text[place:])
            place += used
            if verdict is not Verdict.READING or not used:
                return place, [], verdict
        used, events, verdict = self._call.feed(text[place:])
        if verdict is Verdict.DONE:
            self._call, self._has_calls, verdict = None, True, Verdict.READING
        elif verdict is Verdict.BROKEN:
            self._is_broken, verdict = True, Verdict.READING
        return place + used, events, verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the section that the answer left open."""
        del unread
        if self._is_broken:
            return [], Verdict.BROKEN
        if self._call is None:
            return [], Verdict.DONE if self._has_calls else Verdict.TEXT
        schema = self._schemas.get(self._call.name)
        needs_none = schema is not None and not required_names(schema)
        return self._call.finish(may_be_empty=needs_none and not was_cut)

    def _skip(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        before, close, _ = text.partition(self._form.close)
        if close:
            return len(before) + len(close), [], Verdict.BROKEN
        return len(before) - held_length(before, (self._form.close,)), [], Verdict.READING

    def _read_between(self, text: str) -> tuple[int, Verdict]:
        """Read a marker between calls; nothing is used while it is incomplete."""
        form = self._form
        rest = text.lstrip()
        space = len(text) - len(rest)
        for end in form.call_ends:
            if rest.startswith(end):
                return space + len(end), Verdict.READING
        if rest.startswith(form.close):
            verdict = Verdict.DONE if self._has_calls else Verdict.DROPPED
            return space + len(form.close), verdict
        if rest.startswith(form.call):
            return self._read_head(rest, space)
        if not rest or is_start(rest, form.call, form.close, *form.call_ends):
            return 0, Verdict.READING
        return (0, Verdict.DONE) if self._has_calls else (space, Verdict.TEXT)

    def _read_head(self, rest: str, space: int) -> tuple[int, Verdict]:
        length, name = self._form.read_head(rest.removeprefix(self._form.call))
        if not length:
            return 0, Verdict.READING
        used = space + len(self._form.call) + length
        if name is None:
            return used, Verdict.BROKEN if self._has_calls else Verdict.TEXT
        self._call = NamedArguments(name)
        return used, Verdict.READING
