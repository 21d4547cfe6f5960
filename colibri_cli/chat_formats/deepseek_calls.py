"""What both syntaxes of DeepSeek V3 share: their marks, the reader, and how tools are declared.

The templates of these models write calls and results but no tools, so those go into the system
message, under the headings of https://huggingface.co/deepseek-ai/DeepSeek-V3.1 (section ToolCall).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import with_system_text
from colibri_cli.chat_formats.call_parser import CallParser, limited
from colibri_cli.chat_formats.call_section import CallSection, SectionForm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.chat_formats.tool_formats.base import DeclaredTool, ToolParser

OPEN: Final = "<｜tool▁calls▁begin｜>"  # noqa: RUF001 - the vocabulary's own full-width bars
CLOSE: Final = "<｜tool▁calls▁end｜>"  # noqa: RUF001
CALL: Final = "<｜tool▁call▁begin｜>"  # noqa: RUF001
SEPARATOR: Final = "<｜tool▁sep｜>"  # noqa: RUF001
CALL_END: Final = "<｜tool▁call▁end｜>"  # noqa: RUF001
FENCE: Final = "```"
_NAME: Final = re.compile(r"\s*([A-Za-z0-9_.\-]+)\s*")
_KIND: Final = "function"
# Up to a character that neither the fence nor its word goes on with.
_FENCED: Final = re.compile(rf"\s*([A-Za-z0-9_.\-]+)[ \t]*\n\s*(?:{FENCE}(?:json)?)?\s*(?=[^\s`j])")
_HEADING: Final = "## Tools\nYou have access to the following tools:\n"


def parser_of(tools: Sequence[DeclaredTool], *, parallel: bool) -> ToolParser:
    """Return a parser for either syntax: models of one write the other now and then."""
    schemas = {tool.name: tool.parameters for tool in tools}
    return limited(
        CallParser(OPEN, lambda _: CallSection(_FORM, schemas), schemas), parallel=parallel
    )


def declared(conversation: Conversation, form: str) -> Conversation:
    """Return the conversation with its tools, and the form of a call, in the system message."""
    if not conversation.tools:
        return conversation
    functions = [tool.get("function", tool) for tool in conversation.tools]
    parts = [_HEADING, *map(_declaration, functions)]
    parts.append(f"To call tools, write nothing but this, with one part for each call:\n{form}")
    if conversation.call_instruction:
        parts.append(conversation.call_instruction)
    written = replace(conversation, tools=(), call_instruction="")
    return with_system_text(written, "\n".join(parts))


def _declaration(function: Mapping[str, Any]) -> str:
    parameters = json.dumps(function.get("parameters", {}), ensure_ascii=False)
    description = function.get("description", "")
    return f"### {function['name']}\nDescription: {description}\n\nParameters: {parameters}\n"


def _read_head(text: str) -> tuple[int, str | None]:
    """Read `NAME<sep>`, or `function<sep>NAME`, a line break and the opening fence."""
    head, separator, rest = text.partition(SEPARATOR)
    used = len(head) + len(separator)
    if not separator or not rest.strip():
        return 0, None
    if rest.lstrip()[0] == "{" or head.strip() != _KIND:
        found = _NAME.fullmatch(head)
        return used, None if found is None else found[1]
    fenced = _FENCED.match(rest)
    if fenced is not None:
        return used + fenced.end(), fenced[1]
    return (used, None) if "{" in rest or CALL_END in rest else (0, None)


_FORM: Final = SectionForm(CALL, (CALL_END, FENCE), CLOSE, _read_head)
