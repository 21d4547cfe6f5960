"""OpenAI `tools`, `functions` and `tool_choice` → declared functions and what to do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import has_nul
from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNSUPPORTED_VALUE,
    check_distinct,
    not_announced,
    refusal,
    shown,
)
from colibri_cli.gateway.turns import ToolChoice, ToolDeclaration, ToolMode
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served

_EMPTY_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_FUNCTION_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {},
        "parameters": {
            "type": ["object", "null"],
            "description": "JSON schema of the arguments.",
        },
        "strict": {
            "type": ["boolean", "null"],
            "description": "The arguments must satisfy the schema.",
        },
    },
}
TOOLS_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {
        "anyOf": [
            {
                "type": "object",
                "required": ["function"],
                "properties": {"type": {"const": "function"}, "function": _FUNCTION_SCHEMA},
            },
            _FUNCTION_SCHEMA,
        ]
    },
}
TOOL_CHOICE_SCHEMA: Final[Mapping[str, Any]] = {
    "oneOf": [
        {"enum": ["auto", "none", "required"]},
        {
            "type": "object",
            "description": "Names a declared function.",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}},
                },
                "name": {"type": "string"},
            },
        },
    ]
}


def parse_tools(body: Mapping[str, Any], served: Served) -> tuple[ToolDeclaration, ...]:
    """Return the declared functions of `tools`, else of `functions`.

    Raises:
        HttpError: 400 naming the part that is no declaration, or the name that stands twice.
    """
    for name in ("tools", "functions"):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, list):
            raise refusal(name, f"{name} must be an array, not {shown(value)}", INVALID_VALUE)
        if value:
            tools = tuple(
                _declaration(tool, f"{name}.{index}", served) for index, tool in enumerate(value)
            )
            check_distinct([tool.name for tool in tools], name, ".function.name")
            return tools
    return ()


def parse_tool_choice(body: Mapping[str, Any], tools: tuple[ToolDeclaration, ...]) -> ToolChoice:
    """Return what to do with the tools; `function_call` is the older name of the field.

    Raises:
        HttpError: 400 for an unknown mode, an undeclared function, or a demand without tools.
    """
    param = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    value = body.get(param)
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        if value not in {"auto", "none", "required"}:
            raise refusal(
                param,
                f"{param} must be auto, none, required or an object that names a function,"
                f" not {shown(value)}",
                UNSUPPORTED_VALUE,
            )
        choice = ToolChoice(ToolMode(value))
    elif isinstance(value, dict):
        choice = ToolChoice(ToolMode.NAMED, _chosen_name(value, param))
    else:
        raise refusal(
            param, f"{param} must be a text or an object, not {shown(value)}", INVALID_VALUE
        )
    if choice.mode is ToolMode.NONE:
        return choice
    names = [tool.name for tool in tools]
    if not names:
        raise refusal(param, f"{param} needs tools, and none are declared", INVALID_VALUE)
    if choice.name is not None and choice.name not in names:
        raise refusal(
            param,
            f"{param} names {shown(choice.name)}, which is not declared; declared:"
            f" {', '.join(names)[:200]}",
            INVALID_VALUE,
        )
    return choice


def offered_tools(
    tools: tuple[ToolDeclaration, ...], choice: ToolChoice
) -> tuple[ToolDeclaration, ...]:
    """Return the functions the prompt shows: none, the named one, or all."""
    if choice.mode is ToolMode.NONE:
        return ()
    if choice.mode is ToolMode.NAMED:
        return tuple(tool for tool in tools if tool.name == choice.name)
    return tools


def template_tools(tools: tuple[ToolDeclaration, ...]) -> tuple[Mapping[str, Any], ...]:
    """Return declarations as chat templates expect them."""
    return tuple({"type": "function", "function": tool.declaration} for tool in tools)


def _declaration(value: Any, path: str, served: Served) -> ToolDeclaration:  # noqa: ANN401
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object, not {shown(value)}", INVALID_VALUE)
    if value.get("type", "function") != "function":
        raise refusal(
            path,
            f"{path} has the type {shown(value['type'])}; only functions can be called here",
            INVALID_VALUE,
        )
    function = value
    if "function" in value:
        function, path = value["function"], f"{path}.function"
        if not isinstance(function, dict):
            raise refusal(path, f"{path} must be an object, not {shown(function)}", INVALID_VALUE)
    name_path = path if path.endswith(".function") else f"{path}.function"
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(
            f"{name_path}.name",
            f"{name_path}.name must be the function's name, not {shown(name)}",
            INVALID_VALUE,
        )
    parameters = function.get("parameters")
    if parameters is None:
        parameters = _EMPTY_PARAMETERS
    if not isinstance(parameters, dict):
        where = f"{name_path}.parameters"
        raise refusal(
            where, f"{where} must be a JSON schema, not {shown(parameters)}", INVALID_VALUE
        )
    if has_nul(function):
        raise refusal("tools", f"{path} holds a NUL character; remove it", INVALID_VALUE)
    declaration = {
        key: item for key, item in function.items() if key != "type" or "function" in value
    }
    strict = _strict(function.get("strict"), f"{name_path}.strict", served)
    return ToolDeclaration(name, parameters, declaration, strict)


def _strict(value: Any, path: str, served: Served) -> bool:  # noqa: ANN401 - any JSON value
    if value is None:
        return False
    if not isinstance(value, bool):
        raise refusal(path, f"{path} must be true or false, not {shown(value)}", INVALID_VALUE)
    if value and Word.GRAMMAR not in served.words:
        raise not_announced(path)
    return value


def _chosen_name(value: dict[str, Any], param: str) -> str:
    if value.get("type", "function") != "function":
        raise refusal(
            param, f"{param} has the type {shown(value['type'])}, not function", INVALID_VALUE
        )
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else value.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(param, f"{param} must name a function in function.name", INVALID_VALUE)
    return name
