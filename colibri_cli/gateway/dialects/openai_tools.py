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
            "description": "Only some of the declared functions may be called.",
            "required": ["type", "allowed_tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "allowed_tools": {
                    "type": "object",
                    "required": ["mode", "tools"],
                    "properties": {
                        "mode": {"enum": ["auto", "required"]},
                        "tools": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    },
                },
            },
        },
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


def parse_tool_choice(
    body: Mapping[str, Any], tools: tuple[ToolDeclaration, ...]
) -> tuple[tuple[ToolDeclaration, ...], ToolChoice]:
    """Return the tools that are left to choose from, and what to do with them.

    `function_call` is the older name of the field.

    Raises:
        HttpError: 400 for an unknown mode, an undeclared function, or a demand without tools.
    """
    param = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    value = body.get(param)
    if value is None:
        return tools, ToolChoice()
    if isinstance(value, str):
        if value not in {"auto", "none", "required"}:
            raise refusal(
                param,
                f"{param} must be auto, none, required or an object that names a function,"
                f" not {shown(value)}",
                UNSUPPORTED_VALUE,
            )
        choice = ToolChoice(ToolMode(value))
    elif isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools"), f"{param}.allowed_tools", tools)
    elif isinstance(value, dict):
        choice = ToolChoice(ToolMode.NAMED, _chosen_name(value, param))
    else:
        raise refusal(
            param, f"{param} must be a text or an object, not {shown(value)}", INVALID_VALUE
        )
    if choice.mode is ToolMode.NONE:
        return tools, choice
    if not tools:
        raise refusal(param, f"{param} needs tools, and none are declared", INVALID_VALUE)
    if choice.name is not None:
        _check_declared(choice.name, param, tools)
    return tools, choice


def _allowed(
    value: Any,  # noqa: ANN401 - any JSON value
    path: str,
    tools: tuple[ToolDeclaration, ...],
) -> tuple[tuple[ToolDeclaration, ...], ToolChoice]:
    """Return those of the tools that may be called, and whether one must be."""
    param = path.partition(".")[0]
    mode = value.get("mode") if isinstance(value, dict) else None
    if mode not in ("auto", "required"):  # a tuple: any JSON value may stand there
        raise refusal(
            param, f"{path}.mode must be auto or required, not {shown(mode)}", INVALID_VALUE
        )
    members = value.get("tools")
    if not isinstance(members, list) or not members:
        raise refusal(param, f"{path}.tools must name at least one function", INVALID_VALUE)
    names: set[str] = set()
    for index, member in enumerate(members):
        where = f"{path}.tools.{index}"
        if not isinstance(member, dict):
            raise refusal(param, f"{where} must be an object, not {shown(member)}", INVALID_VALUE)
        name = _chosen_name(member, where, param)
        _check_declared(name, where, tools, param)
        names.add(name)
    return tuple(tool for tool in tools if tool.name in names), ToolChoice(ToolMode(mode))


def _check_declared(
    name: str, path: str, tools: tuple[ToolDeclaration, ...], param: str | None = None
) -> None:
    declared = [tool.name for tool in tools]
    if name not in declared:
        raise refusal(
            param or path,
            f"{path} names {shown(name)}, which is not declared; declared:"
            f" {', '.join(declared)[:200] or 'none'}",
            INVALID_VALUE,
        )


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


def _chosen_name(value: dict[str, Any], path: str, param: str | None = None) -> str:
    if value.get("type", "function") != "function":
        raise refusal(
            param or path,
            f"{path} has the type {shown(value['type'])}, not function",
            INVALID_VALUE,
        )
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else value.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(param or path, f"{path} must name a function in function.name", INVALID_VALUE)
    return name
