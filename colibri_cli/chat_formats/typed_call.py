"""A call whose arguments come as plain text, one by one: turned into JSON by the declared types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.chat_formats.tool_formats.base import (
    CallArguments,
    CallFinished,
    CallStarted,
    ToolEvent,
)
from colibri_cli.chat_formats.tool_schema import (
    ValueKind,
    compact_json,
    declared_value,
    required_names,
    value_json,
    value_kind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class TypedCall:
    """Collects the events of one call; text values are passed on as they come.

    Args:
        schemas: Parameters of the declared functions, by name.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.name = ""
        self.is_started = False
        self.has_arguments = False
        self._schemas = schemas
        self._keys: list[str] = []
        self._key = ""
        self._kind = ValueKind.JSON
        self._value: list[str] = []
        self._events: list[ToolEvent] = []

    @property
    def is_declared(self) -> bool:
        """Whether the function was offered."""
        return self.name in self._schemas

    @property
    def is_complete(self) -> bool:
        """Whether the function was offered and no required parameter is missing."""
        return self.is_declared and set(required_names(self._schema)) <= set(self._keys)

    @property
    def first_parameter(self) -> str:
        """The first required, else the first declared parameter."""
        properties = self._schema.get("properties")
        declared = properties if isinstance(properties, dict) else ()
        return next(iter([*required_names(self._schema), *declared]), "input")

    def start(self) -> None:
        """Say once that the function is called."""
        if not self.is_started:
            self.is_started = True
            self._events.append(CallStarted(self.name))

    def begin_value(self, key: str, *, is_text: bool = False) -> None:
        """Begin the value of an argument.

        Args:
            key: The parameter.
            is_text: The model says it is text; counts for parameters nobody declared.
        """
        self._key = key
        is_undeclared = declared_value(self._schema, key) is None
        as_text = is_text and is_undeclared
        self._kind = ValueKind.TEXT if as_text else value_kind(self._schema, key)
        self._value = []
        if self._kind is ValueKind.TEXT:
            self._arguments(self._key_json() + '"')

    def add_value(self, text: str) -> None:
        """Add to the value."""
        if self._kind is not ValueKind.TEXT:
            self._value.append(text)
        elif text:
            self._arguments(compact_json(text)[1:-1])

    def end_value(self) -> None:
        """End the value."""
        if self._kind is ValueKind.TEXT:
            self._arguments('"')
        else:
            value = value_json("".join(self._value), self._kind)
            self._arguments(self._key_json() + value)
        self._keys.append(self._key)
        self.has_arguments = True

    def end(self) -> None:
        """End the call."""
        self.start()
        self._arguments("}" if self._keys else "{}")
        self._events.append(CallFinished())

    def take(self) -> list[ToolEvent]:
        """Return the events since the last time."""
        events, self._events = self._events, []
        return events

    @property
    def _schema(self) -> Mapping[str, Any]:
        return self._schemas.get(self.name, {})

    def _key_json(self) -> str:
        return ("," if self._keys else "{") + compact_json(self._key) + ":"

    def _arguments(self, text: str) -> None:
        self._events.append(CallArguments(text))
