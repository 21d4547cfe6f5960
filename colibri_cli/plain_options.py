"""Options of text, numbers and switches: taken as the command line gives them.

Typer checks every value with pydantic, whose import and validators take longer than all else before
a command begins. What is text already, or a truth value, needs no check; a number is read as those
of settings are, so that a wrong one is refused in the same words.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from colibri_protocol.setting import Kind, Scope, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    Process = Callable[[Any, Any], Any]

_PLAIN: Final = frozenset({str, bool, int, float})
_NUMBERS: Final = {int: Kind.INTEGER, float: Kind.NUMBER}
_LIMITS: Final = ("min", "max", "parser")


def take_plainly(command: Any) -> None:  # noqa: ANN401 - Typer's own command
    """Let the options and arguments of a command, and of a group's commands, take plain values."""
    command.get_params = partial(_parameters, command.get_params)
    for inner in getattr(command, "commands", {}).values():
        take_plainly(inner)


def _parameters(all_of: Callable[[Any], list[Any]], context: Any) -> list[Any]:  # noqa: ANN401
    """Return the parameters of a command, its `--help` among them, changed once."""
    parameters = all_of(context)
    for parameter in parameters:
        if not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_value, parameter, parameter.process_value)
    return parameters


def _value(parameter: Any, checked: Process, context: Any, value: Any) -> Any:  # noqa: ANN401
    """Return what the command gets for a value.

    Raises:
        SettingsError: it is not the number it should be.
    """
    row = None if value is None else _number(parameter)
    if row is not None:  # what is a number already is the default
        value = row.parse(value, row.name) if isinstance(value, str) else value
    elif not _is_plain(parameter, value):
        return checked(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _number(parameter: Any) -> Setting | None:  # noqa: ANN401
    """Return type and range of a parameter of one number; None if it is of another kind."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None or parameter.multiple or parameter.nargs != 1:
        return None
    kind = _NUMBERS.get(described.annotation)
    if kind is None:
        return None
    limits = described.parameter_info
    if limits.parser is not None or limits.clamp:
        return None
    is_option = parameter.param_type_name == "option"
    name = max(parameter.opts, key=len) if is_option else parameter.human_readable_name
    return Setting(name=name, kind=kind, help="", scope=Scope.CLI, low=limits.min, high=limits.max)


def _is_plain(parameter: Any, value: Any) -> bool:  # noqa: ANN401
    """Whether Typer's check would leave a value as it is."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:  # another Typer
        return False
    is_several = parameter.multiple or parameter.nargs != 1
    if value is None or (is_several and not value):
        return not parameter.required
    kind, limits = described.annotation, described.parameter_info
    if any(getattr(limits, name, None) is not None for name in _LIMITS):
        return False
    if not is_several:
        return kind in _PLAIN and type(value) is kind
    return kind == list[str] and bool(value) and all(isinstance(item, str) for item in value)
