"""Fields of the Messages API: what each may hold and what it asks for.

`MESSAGE_FIELDS` is the one table for validation and the OpenAPI document; `COUNT_FIELDS` is the
same for counting tokens. Fields that change nothing here (`cache_control`, `service_tier`, …) are
accepted as the vendor's servers accept them; what would need a server's own tools is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from colibri_cli.gateway.dialects.anthropic_blocks import check_messages, check_system
from colibri_cli.gateway.dialects.anthropic_schemas import (
    DISPLAYS,
    EFFORTS,
    MAX_STOP_SEQUENCES,
    MESSAGES_SCHEMA,
    OUTPUT_CONFIG_SCHEMA,
    OUTPUT_FORMAT_SCHEMA,
    STOPS_SCHEMA,
    SYSTEM_SCHEMA,
    THINKING_SCHEMA,
    TOOL_CHOICE_SCHEMA,
    TOOLS_SCHEMA,
)
from colibri_cli.gateway.dialects.fields import (
    INVALID_VALUE,
    UNSUPPORTED_PARAMETER,
    Field,
    anything,
    boolean,
    check_distinct,
    checked_by,
    number,
    only,
    refusal,
    shown,
    whole,
    word,
)
from colibri_cli.gateway.turns import ResponseFormat, ToolChoice, ToolDeclaration, ToolMode
from colibri_protocol.messages import Word

_EMPTY_SCHEMA: Final = {"type": "object", "properties": {}}
_TOOL_MODES: Final = {
    "auto": ToolMode.AUTO,
    "any": ToolMode.REQUIRED,
    "none": ToolMode.NONE,
    "tool": ToolMode.NAMED,
}


@dataclass(frozen=True, slots=True)
class Thinking:
    """What the client wants of reasoning: whether, how much, and whether to be shown it."""

    is_on: bool
    budget: int | None = None
    is_shown: bool = True
    is_adaptive: bool = False


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """Effort level and constraint of the answer."""

    effort: str | None = None
    response_format: ResponseFormat | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with the tools, and whether one answer may hold several calls."""

    tool_choice: ToolChoice
    is_parallel: bool


def check_tools(value: Any, path: str) -> tuple[ToolDeclaration, ...]:  # noqa: ANN401 - any JSON
    """Return the declared functions; tools that run on the vendor's servers are refused."""
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be an array of tools", INVALID_VALUE)
    tools = tuple(_tool(tool, f"{path}.{index}") for index, tool in enumerate(value))
    check_distinct([tool.name for tool in tools], path, ".name")
    return tools


def _tool(tool: Any, path: str) -> ToolDeclaration:  # noqa: ANN401 - any JSON value
    if not isinstance(tool, dict):
        raise refusal(path, f"{path} must be an object with a name and an input_schema")
    kind = tool.get("type")
    if kind not in (None, "custom"):  # a tuple: any JSON value may stand there
        raise refusal(
            f"{path}.type",
            f"{path}.type: tools of type {shown(kind)} are not supported, only tools the client"
            " declares with an input_schema",
            UNSUPPORTED_PARAMETER,
        )
    name, schema = tool.get("name"), tool.get("input_schema")
    description, strict = tool.get("description"), tool.get("strict")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.name", f"{path}.name must be the name of the tool")
    if schema is None:
        schema = _EMPTY_SCHEMA
    if not isinstance(schema, dict):
        raise refusal(f"{path}.input_schema", f"{path}.input_schema must be a JSON schema object")
    if description is not None and not isinstance(description, str):
        raise refusal(f"{path}.description", f"{path}.description must be a text")
    if strict is not None and not isinstance(strict, bool):
        raise refusal(f"{path}.strict", f"{path}.strict must be true or false")
    declaration = {"name": name, "description": description or "", "parameters": schema}
    return ToolDeclaration(name, schema, declaration, is_strict=bool(strict))


def check_tool_choice(value: Any, path: str) -> Choice:  # noqa: ANN401 - any JSON value
    """Return what shall be done with the tools; whether the name exists is checked elsewhere."""
    kind = value.get("type") if isinstance(value, dict) else None
    mode = _TOOL_MODES.get(kind) if isinstance(kind, str) else None
    if mode is None:
        raise refusal(
            path, f"{path} must be an object of type {', '.join(_TOOL_MODES)}", INVALID_VALUE
        )
    name = value.get("name") if mode is ToolMode.NAMED else None
    if mode is ToolMode.NAMED and (not isinstance(name, str) or not name):
        raise refusal(f"{path}.name", f"{path}.name must be the name of a tool", INVALID_VALUE)
    single = value.get("disable_parallel_tool_use")
    if single is not None and not isinstance(single, bool):
        single_path = f"{path}.disable_parallel_tool_use"
        raise refusal(single_path, f"{single_path} must be true or false")
    return Choice(ToolChoice(mode, name), is_parallel=not single)


def check_thinking(value: Any, path: str) -> Thinking:  # noqa: ANN401 - any JSON value
    """Return what the client wants of reasoning; any type but `enabled` and `adaptive` is off."""
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object with a type")
    kind, budget, display = value.get("type"), value.get("budget_tokens"), value.get("display")
    if not isinstance(kind, str):
        raise refusal(f"{path}.type", f"{path}.type must be enabled, adaptive or disabled")
    if budget is not None:
        budget = whole(1).check(budget, f"{path}.budget_tokens")
    if display is not None:
        display = word(DISPLAYS).check(display, f"{path}.display")
    if kind not in {"enabled", "adaptive"}:
        return Thinking(is_on=False)
    return Thinking(True, budget, display != "omitted", kind == "adaptive")


def check_output_config(value: Any, path: str) -> OutputConfig:  # noqa: ANN401 - any JSON value
    """Return effort and constraint."""
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object")
    effort, output_format = value.get("effort"), value.get("format")
    if effort is not None:
        effort = word(EFFORTS).check(effort, f"{path}.effort")
    if output_format is not None:
        output_format = check_output_format(output_format, f"{path}.format")
    return OutputConfig(effort, output_format)


def check_output_format(value: Any, path: str) -> ResponseFormat:  # noqa: ANN401 - any JSON value
    """Return the constraint of the answer."""
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        raise refusal(path, f"{path} must be an object of type json_schema", INVALID_VALUE)
    schema = value.get("schema")
    if not isinstance(schema, dict):
        raise refusal(f"{path}.schema", f"{path}.schema must be a JSON schema object")
    return ResponseFormat("json_schema", json.dumps(schema, ensure_ascii=False))


def _check_stops(value: Any, path: str) -> tuple[str, ...]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, list) or len(value) > MAX_STOP_SEQUENCES:
        raise refusal(path, f"{path} must be an array of at most {MAX_STOP_SEQUENCES} texts")
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise refusal(f"{path}.{index}", f"{path}.{index} must be a text that is not empty")
    return tuple(value)


MESSAGE_FIELDS: Final = (
    Field(name="model", kind=anything(), help="The served model; absent: that one."),
    Field(
        name="stop_sequences",
        kind=checked_by(_check_stops, STOPS_SCHEMA),
        help="Texts that end the answer; needs an engine that announced options.",
        default=(),
        needs=Word.OPTIONS,
        neutral=([],),
    ),
    Field(
        name="top_k",
        kind=whole(0),
        help="Sample from this many likeliest tokens, 0 from all; needs announced options.",
        needs=Word.OPTIONS,
    ),
    Field(name="mcp_servers", kind=only([]), help="Servers of tools: not supported."),
    Field(
        name="container",
        kind=checked_by(only().check, {"type": "null"}),
        help="Place for code to run: not supported.",
    ),
    Field(
        name="messages",
        kind=checked_by(check_messages, MESSAGES_SCHEMA),
        help="The conversation; a system message among them gives instructions at its place.",
        is_required=True,
    ),
    Field(
        name="system",
        kind=checked_by(check_system, SYSTEM_SCHEMA),
        help="Instructions in front of the conversation.",
        default="",
    ),
    Field(
        name="tools",
        kind=checked_by(check_tools, TOOLS_SCHEMA),
        help="Functions the client runs for the model.",
        default=(),
    ),
    Field(
        name="tool_choice",
        kind=checked_by(check_tool_choice, TOOL_CHOICE_SCHEMA),
        help="Whether tools may, must or must not be called.",
    ),
    Field(
        name="thinking",
        kind=checked_by(check_thinking, THINKING_SCHEMA),
        help="Reasoning before the answer, with a budget; absent: as the server was started.",
    ),
    Field(
        name="output_config",
        kind=checked_by(check_output_config, OUTPUT_CONFIG_SCHEMA),
        help="Effort of reasoning; a JSON schema for the answer, if the engine has grammars.",
    ),
    Field(
        name="output_format",
        kind=checked_by(check_output_format, OUTPUT_FORMAT_SCHEMA),
        help="Older name of output_config.format.",
    ),
    Field(
        name="max_tokens",
        kind=whole(1),
        help="Most tokens to generate; more than the server's limit means the limit.",
        is_required=True,
    ),
    Field(name="temperature", kind=number(0, 2), help="0 is greedy."),
    Field(
        name="top_p",
        kind=number(0, 1, is_low_allowed=False),
        help="Sample from the likeliest tokens that have this probability together.",
    ),
    Field(name="stream", kind=boolean(), help="Answer with events.", default=False),
    Field(name="cache_slot", kind=whole(0), help="Context slot of the engine to use."),
    Field(name="metadata", kind=anything(), help="user_id keeps conversations together."),
)
_GENERATION_FIELDS: Final = frozenset(
    {"stop_sequences", "top_k", "temperature", "top_p", "stream", "cache_slot", "metadata"}
)
COUNT_FIELDS: Final = tuple(
    replace(row, is_required=False) if row.name == "max_tokens" else row
    for row in MESSAGE_FIELDS
    if row.name not in _GENERATION_FIELDS
)
