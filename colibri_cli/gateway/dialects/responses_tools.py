"""Tools of the Responses API: functions, custom tools and namespaces of them.

A custom tool takes one free text; to the model it is a function with the one argument `input`. A
function in a namespace keeps its own name where that is unique, else it is `namespace.name`.
Tools that run on the vendor's servers do not exist here: `web_search` is left out of what the model
is offered (coding agents always declare it; `tools` of the answer does not list it), every other
one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNSUPPORTED_PARAMETER,
    UNSUPPORTED_VALUE,
    not_announced,
    refusal,
    shown,
)
from colibri_cli.gateway.turns import ToolChoice, ToolDeclaration, ToolMode
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served

CUSTOM_INPUT: Final = "input"
LEFT_OUT: Final = ("web_search", "web_search_2025_08_26", "web_search_preview")
_EMPTY_SCHEMA: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_CUSTOM_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string", "description": "The whole input as text."}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a function the model sees was declared."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The declared tools.

    Args:
        declared: What the model may call.
        origins: How the client declared each, by the name the model sees.
        accepted: The declarations as the answer repeats them.
    """

    declared: tuple[ToolDeclaration, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    accepted: tuple[Mapping[str, Any], ...] = ()

    def model_name(self, name: str, namespace: str | None = None) -> str:
        """Return the name the model sees; one that is not declared is its own."""
        for seen, origin in self.origins.items():
            if (origin.name, origin.namespace) == (name, namespace):
                return seen
        return name

    def origin(self, model_name: str) -> Origin:
        """Return where a function was declared."""
        return self.origins.get(model_name) or Origin(model_name)


@dataclass(frozen=True, slots=True)
class _Found:
    origin: Origin
    parameters: Mapping[str, Any]
    description: str
    is_strict: bool = False


def parse_tools(value: Any, served: Served) -> Tools:  # noqa: ANN401 - any JSON value
    """Return the declared tools.

    Raises:
        HttpError: 400 naming the part that cannot be offered.
    """
    if value is None:
        return Tools()
    if not isinstance(value, list):
        raise refusal("tools", f"tools must be an array, not {shown(value)}", INVALID_VALUE)
    found: list[_Found] = []
    accepted: list[Mapping[str, Any]] = []
    for index, tool in enumerate(value):
        if isinstance(tool, dict) and tool.get("type") in LEFT_OUT:
            continue
        found += _tool(tool, f"tools.{index}", served)
        accepted.append(tool)
    names = [one.origin.name for one in found]
    origins: dict[str, Origin] = {}
    declared: list[ToolDeclaration] = []
    for one in found:
        name = one.origin.name
        if names.count(name) > 1 and one.origin.namespace is not None:
            name = f"{one.origin.namespace}.{name}"
        if name in origins:
            raise refusal("tools", f"tools declares {shown(name)} twice", INVALID_VALUE)
        origins[name] = one.origin
        declaration = {"name": name, "description": one.description, "parameters": one.parameters}
        declared.append(ToolDeclaration(name, one.parameters, declaration, one.is_strict))
    return Tools(tuple(declared), origins, tuple(accepted))


def _tool(
    tool: Any,  # noqa: ANN401 - any JSON value
    path: str,
    served: Served,
    namespace: str | None = None,
) -> list[_Found]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind == "function":
        return [_function(tool, path, served, namespace)]
    if kind == "custom":
        return [_custom(tool, path, namespace)]
    if kind == "namespace" and namespace is None:
        return _namespace(tool, path, served)
    if not isinstance(tool, dict):
        raise refusal(path, f"{path} must be an object, not {shown(tool)}", INVALID_VALUE)
    raise refusal(
        f"{path}.type",
        f"{path}.type: tools of the type {shown(kind)} are not supported, only function, custom and"
        " namespace, which the client runs itself",
        UNSUPPORTED_PARAMETER,
    )


def _function(tool: Mapping[str, Any], path: str, served: Served, namespace: str | None) -> _Found:
    parameters, strict = tool.get("parameters"), tool.get("strict")
    if parameters is None:
        parameters = _EMPTY_SCHEMA
    if not isinstance(parameters, dict):
        raise refusal(
            f"{path}.parameters",
            f"{path}.parameters must be a JSON schema, not {shown(parameters)}",
            INVALID_VALUE,
        )
    if strict is not None and not isinstance(strict, bool):
        raise refusal(f"{path}.strict", f"{path}.strict must be true or false", INVALID_VALUE)
    if strict and Word.GRAMMAR not in served.words:
        raise not_announced(f"{path}.strict")
    origin = Origin(_name(tool, path), namespace)
    return _Found(origin, parameters, _description(tool, path), bool(strict))


def _custom(tool: Mapping[str, Any], path: str, namespace: str | None) -> _Found:
    form = tool.get("format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        raise refusal(
            f"{path}.format",
            f"{path}.format: the input of a custom tool cannot be held to a grammar; leave format"
            " out, or declare a function",
            UNSUPPORTED_PARAMETER,
        )
    origin = Origin(_name(tool, path), namespace, is_custom=True)
    return _Found(origin, _CUSTOM_SCHEMA, _description(tool, path))


def _namespace(tool: Mapping[str, Any], path: str, served: Served) -> list[_Found]:
    name, members = _name(tool, path), tool.get("tools")
    if not isinstance(members, list):
        raise refusal(f"{path}.tools", f"{path}.tools must be an array", INVALID_VALUE)
    found: list[_Found] = []
    for index, member in enumerate(members):
        found += _tool(member, f"{path}.tools.{index}", served, name)
    return found


def _name(tool: Mapping[str, Any], path: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(
            f"{path}.name", f"{path}.name must be the tool's name, not {shown(name)}", INVALID_VALUE
        )
    return name


def _description(tool: Mapping[str, Any], path: str) -> str:
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise refusal(f"{path}.description", f"{path}.description must be a text", INVALID_VALUE)
    return description or ""


# ---- what to do with them -----------------------------------------------------------------------


def parse_tool_choice(value: Any, tools: Tools) -> tuple[Tools, ToolChoice]:  # noqa: ANN401
    """Return the tools that may be called and what to do with them.

    Raises:
        HttpError: 400 for an unknown mode, an undeclared tool, or a demand without tools.
    """
    if value is None:
        return tools, ToolChoice()
    if isinstance(value, str):
        if value not in {"auto", "none", "required"}:
            raise refusal(
                "tool_choice",
                f"tool_choice must be auto, none, required or an object, not {shown(value)}",
                UNSUPPORTED_VALUE,
            )
        choice = ToolChoice(ToolMode(value))
    elif isinstance(value, dict) and value.get("type") == "allowed_tools":
        tools, choice = _allowed(value, tools)
    elif isinstance(value, dict):
        choice = ToolChoice(ToolMode.NAMED, _chosen(value, "tool_choice", tools))
    else:
        raise refusal(
            "tool_choice",
            f"tool_choice must be a text or an object, not {shown(value)}",
            INVALID_VALUE,
        )
    if choice.mode is ToolMode.REQUIRED and not tools.declared:
        raise refusal(
            "tool_choice", "tool_choice needs tools, and none are declared", INVALID_VALUE
        )
    return tools, choice


def _allowed(value: Mapping[str, Any], tools: Tools) -> tuple[Tools, ToolChoice]:
    mode, members = value.get("mode"), value.get("tools")
    if mode not in ("auto", "required"):
        raise refusal(
            "tool_choice.mode",
            f"tool_choice.mode must be auto or required, not {shown(mode)}",
            INVALID_VALUE,
        )
    if not isinstance(members, list) or not members:
        raise refusal(
            "tool_choice.tools", "tool_choice.tools must name at least one tool", INVALID_VALUE
        )
    names = {
        _chosen(member, f"tool_choice.tools.{index}", tools) for index, member in enumerate(members)
    }
    declared = tuple(tool for tool in tools.declared if tool.name in names)
    return Tools(declared, tools.origins, tools.accepted), ToolChoice(ToolMode(mode))


def _chosen(value: Any, path: str, tools: Tools) -> str:  # noqa: ANN401 - any JSON value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("function", "custom"):
        raise refusal(
            path, f"{path} has the type {shown(kind)}, not function or custom", INVALID_VALUE
        )
    name, namespace = value.get("name"), value.get("namespace")
    if isinstance(name, str):
        seen = tools.model_name(name, namespace if isinstance(namespace, str) else None)
        if seen in tools.origins:
            return seen
    raise refusal(path, f"{path} names {shown(name)}, which is not declared", INVALID_VALUE)
