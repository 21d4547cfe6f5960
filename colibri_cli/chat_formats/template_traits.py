"""What a chat template understands about reasoning, found by reading its source.

Templates of different families want the same wish in different words: a switch, a level out of a
set of their own, or both. The set is read from the comparisons the template makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jinja2 import nodes

from colibri_cli.chat_formats.effort import LEVELS, nearest_level
from colibri_cli.chat_formats.harmony import is_harmony
from colibri_cli.chat_formats.sandbox import parse_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colibri_cli.chat_formats.base import Conversation

_EFFORT: Final = "reasoning_effort"
_THINKING_VARIABLES: Final = ("enable_thinking", "thinking", _EFFORT)
_CHANNEL_MARK: Final = "<|content_thinking|>"
_KIMI_MARK: Final = "<|tool_call_argument_begin|>"
_GLM_MARK: Final = "Reasoning Effort"
_HARMONY_LEVELS: Final = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template looks at.

    Args:
        can_think: It has a switch or a level for reasoning.
        effort_levels: The levels it tells apart; empty when it takes any word.
        default_level: Level to name when reasoning is on and the client named none.
        can_switch_off_by_level: The level `none` means no reasoning.
        has_channels: Reasoning and answer are marked parts instead of `<think>`.
        is_harmony: Messages have headers that name a channel.
        writes_one_call: Only the first call of a message is written.
        writes_ids_alone: The id of a call stands for its name.
        wants_short_call_ids: Ids of calls must have nine letters and digits.
        joins_arguments: The arguments of a call are added to a text, so they must be one.
        asks_for_content: It tells a message without text by its content being none.
    """

    can_think: bool
    effort_levels: tuple[str, ...]
    default_level: str | None
    can_switch_off_by_level: bool
    has_channels: bool
    is_harmony: bool
    writes_one_call: bool
    writes_ids_alone: bool
    wants_short_call_ids: bool
    joins_arguments: bool
    asks_for_content: bool


def traits_of(source: str) -> TemplateTraits:
    """Return the traits of a template that compiles."""
    has_channels = _CHANNEL_MARK in source
    tree = parse_template(source)
    levels = set(_compared_levels(tree)) if _EFFORT in source else set()
    if _EFFORT in source and _GLM_MARK in source:
        levels |= {"high", "max"}  # GLM prints the level; a word it does not know becomes Max
    harmony = is_harmony(source)
    if not levels and harmony:
        levels = set(_HARMONY_LEVELS)
    default = None
    if _EFFORT in source and (_GLM_MARK in source or has_channels):
        default = "high"
    return TemplateTraits(
        can_think=any(name in source for name in _THINKING_VARIABLES),
        effort_levels=tuple(level for level in LEVELS if level in levels - {"none"}),
        default_level=default,
        can_switch_off_by_level=has_channels or "none" in levels,
        has_channels=has_channels,
        is_harmony=harmony,
        writes_one_call="tool_calls[0]" in source,
        writes_ids_alone=_KIMI_MARK in source,
        wants_short_call_ids="length != 9" in source or "length == 9" in source,
        joins_arguments=any(
            _is_field(side, "arguments")
            for sum_ in tree.find_all(nodes.Add)
            for side in (sum_.left, sum_.right)
        ),
        asks_for_content=any(
            test.name == "none" and _is_field(test.node, "content")
            for test in tree.find_all(nodes.Test)
        ),
    )


def thinking_variables(traits: TemplateTraits, conversation: Conversation) -> dict[str, Any]:
    """Return the template variables that say what the conversation asks for."""
    # Kept reasoning keeps the prompt a prefix of the next one, so that the cache stays valid.
    variables: dict[str, Any] = {"clear_thinking": False}
    is_on, level = conversation.thinking, conversation.effort
    if is_on is not None:
        variables |= {"enable_thinking": is_on, "thinking": is_on}
    if is_on is False or level == "none":
        if traits.can_switch_off_by_level:
            variables[_EFFORT] = "none"
        elif traits.is_harmony:
            variables[_EFFORT] = _HARMONY_LEVELS[0]  # it always reasons
        return variables
    wanted = level or (traits.default_level if is_on else None)
    if wanted is not None:
        known = traits.effort_levels
        variables[_EFFORT] = nearest_level(wanted, known) if known else _common_word(wanted, traits)
    return variables


def _common_word(level: str, traits: TemplateTraits) -> str:
    return "max" if traits.has_channels and level == "xhigh" else level


def _compared_levels(tree: nodes.Template) -> Iterator[str]:
    """Yield the level words that the template compares the effort with or falls back to."""
    names = {_EFFORT}
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _mentions(assign.node, names):
            names.add(assign.target.name)
    for compare in tree.find_all(nodes.Compare):
        if _mentions(compare.expr, names):
            for operand in compare.ops:
                yield from _words(operand.expr)
    for choice in tree.find_all(nodes.CondExpr):
        if _mentions(choice.test, names):
            for branch in (choice.expr1, choice.expr2):
                if branch is not None:
                    yield from _words(branch)


def _is_field(node: nodes.Node, name: str) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == name
    key = node.arg if isinstance(node, nodes.Getitem) else None
    return isinstance(key, nodes.Const) and key.value == name


def _mentions(node: nodes.Node, names: set[str]) -> bool:
    found = [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    return any(name.name in names for name in found)


def _words(node: nodes.Node) -> Iterator[str]:
    constants = [node] if isinstance(node, nodes.Const) else node.find_all(nodes.Const)
    for constant in constants:
        if isinstance(constant.value, str) and constant.value in LEVELS:
            yield constant.value
