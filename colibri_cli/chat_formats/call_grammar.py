"""Grammars that force tool calls: what the syntaxes have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.lark import LarkGrammar, quoted, regex_of, with_reasoning
from colibri_cli.chat_formats.tool_schema import (
    ValueKind,
    declared_value,
    required_names,
    value_kind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from colibri_cli.chat_formats.tool_formats.base import AnswerFrame, CallChoice, DeclaredTool

_ODD_PATTERN: Final = re.compile(r"\(\?(?!:)|\\[1-9k]")
DEFINITIONS: Final = ("$defs", "definitions")


@dataclass(frozen=True, slots=True)
class CallShape:
    """How a syntax writes a call.

    Args:
        opener: The marker before each call.
        body: Adds what follows the marker for one function; returns its expression.
    """

    opener: str
    body: Callable[[LarkGrammar, DeclaredTool], str]


def forced_calls(
    shape: CallShape,
    tools: Sequence[DeclaredTool],
    choice: CallChoice,
    frame: AnswerFrame,
) -> str:
    """Return the grammar of `ToolSyntax.forced_grammar` for marked calls."""
    grammar = LarkGrammar(frame.special_tokens)
    bodies = [shape.body(grammar, tool) for tool in chosen_tools(tools, choice)]
    body = grammar.rule(" | ".join(bodies))
    if choice.mode == "auto" and frame.final is None:
        call = f"{grammar.until(shape.opener)} {body}"
        text = grammar.free_text()
        answer = f"({call})* {text}" if frame.parallel else f"({text} | {call})"
    else:
        call = f"{grammar.exact(shape.opener)} {body}"
        answer = f"{call} ({grammar.space()} {call})*" if frame.parallel else call
        if choice.mode == "auto" and frame.final is not None:
            answer = f"({answer} | {grammar.form(frame.final)})"
    return grammar.text(with_reasoning(grammar, frame.thinking, answer))


def chosen_tools(tools: Sequence[DeclaredTool], choice: CallChoice) -> Sequence[DeclaredTool]:
    """Return the tools a choice leaves: all, or for `named` the one."""
    if choice.mode == "named":
        return [tool for tool in tools if tool.name == choice.name]
    return tools


def json_arguments(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    """Return an expression for the arguments as a JSON object."""
    return grammar.json(arguments_schema(tool), is_strict=tool.is_strict)


def arguments_schema(tool: DeclaredTool) -> dict[str, Any]:
    """Return the schema of the arguments as a grammar can use it."""
    schema: dict[str, Any] = {"type": "object", **tool.parameters}
    if isinstance(schema.get("properties"), dict):
        # A model that may invent parameters does; forbidding them is a choice of valid calls.
        schema.setdefault("additionalProperties", False)
    plain: dict[str, Any] = schema if tool.is_strict else _without_odd_patterns(schema)
    return plain


def text_arguments(
    grammar: LarkGrammar, tool: DeclaredTool, pair: Callable[[str, str], str], closer: str
) -> str:
    """Return an expression for arguments written one by one, in declared order.

    Args:
        grammar: Where rules are added.
        tool: The function.
        pair: From a name and the expression of a value with its closer to that of the argument.
        closer: The marker after a value.
    """
    properties = tool.parameters.get("properties")
    required = required_names(tool.parameters)
    names = dict.fromkeys([*(properties if isinstance(properties, dict) else ()), *required])
    parts = []
    for name in names:
        expression = pair(name, _value(grammar, tool, name, closer))
        parts.append(expression if name in required else f"({expression})?")
    return " ".join(parts)


def _value(grammar: LarkGrammar, tool: DeclaredTool, name: str, closer: str) -> str:
    schema = declared_value(tool.parameters, name)
    if value_kind(tool.parameters, name) is not ValueKind.TEXT:
        body = dict(schema or {})
        for keyword in DEFINITIONS:
            if keyword in tool.parameters:
                body.setdefault(keyword, tool.parameters[keyword])
        return f"{_json(grammar, tool, body)} {grammar.exact(closer)}"
    text_schema = dict(schema or {})
    return _text_value(
        grammar, text_schema if tool.is_strict else _without_odd_patterns(text_schema), closer
    )


def _json(grammar: LarkGrammar, tool: DeclaredTool, schema: dict[str, Any]) -> str:
    if not tool.is_strict:
        schema = _without_odd_patterns(schema)
    return grammar.json(schema, is_strict=tool.is_strict)


def _without_odd_patterns(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a schema without the patterns that no automaton can match (look-around and such)."""
    if isinstance(value, dict):
        return {
            key: _without_odd_patterns(item)
            for key, item in value.items()
            if not (key == "pattern" and isinstance(item, str) and _ODD_PATTERN.search(item))
        }
    return [_without_odd_patterns(item) for item in value] if isinstance(value, list) else value


def _text_value(grammar: LarkGrammar, schema: Mapping[str, Any], closer: str) -> str:
    constants = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(constants, list):
        words = [quoted(word) or '""' for word in constants if isinstance(word, str)]
        return f"({' | '.join(words)}) {grammar.exact(closer)}"
    bounds = _length_bounds(schema)
    pattern = schema.get("pattern")
    if bounds is None and not isinstance(pattern, str):
        return grammar.until(closer)
    limits = [f"/(?s:.){bounds or '*'}/"]
    if isinstance(pattern, str):
        limits.append(f"/{_searched(pattern)}/")
    plain, rest = grammar.before_token(closer) or (closer, "")
    if not plain:
        return f"{grammar.terminal(' & '.join(limits))} {grammar.exact(closer)}"
    limits.append(f"~/(?s:.*){regex_of(plain)}(?s:.*)/")
    value = grammar.rule(f"{grammar.terminal(' & '.join(limits))} {quoted(plain)}", "[lazy]")
    return f"{value} {grammar.exact(rest)}"


def _length_bounds(schema: Mapping[str, Any]) -> str | None:
    low, high = schema.get("minLength"), schema.get("maxLength")
    if not isinstance(low, int) and not isinstance(high, int):
        return None
    return f"{{{low if isinstance(low, int) else 0},{high if isinstance(high, int) else ''}}}"


def _searched(pattern: str) -> str:
    """Return a regex for the texts in which a JSON-schema pattern is found."""
    inside = pattern.removeprefix("^")
    before = "" if inside != pattern else "(?s:.*)"
    if inside.endswith("$") and not inside.endswith("\\$"):
        inside, after = inside[:-1], ""
    else:
        after = "(?s:.*)"
    return f"{before}(?:{inside}){after}".replace("/", r"\x2f")
