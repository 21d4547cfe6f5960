"""The jinja2 environment chat templates run in: sandboxed, bounded, and shaped as they expect.

A template comes from a downloaded checkpoint, so it is untrusted code. It gets no attribute access
to Python internals (jinja2's sandbox), and time, memory (`template_bounds`) and output are bounded.
The names it may use (`raise_exception`, `strftime_now`, `tojson`, `{% generation %}`, loop
controls) are those of https://huggingface.co/docs/transformers/chat_templating.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols

from colibri_cli.chat_formats.template_bounds import BoundedEnvironment
from colibri_cli.errors import ChatFormatError
from colibri_protocol.limits import MAX_PROMPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template
    from jinja2.parser import Parser

MAX_TEMPLATE_CHARACTERS: Final = 1024 * 1024
# What a template's own mistakes raise; filters of jinja2 check their arguments with assert.
_FAULTS: Final = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError,
)  # fmt: skip


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`: marks training text; renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type jinja2 asks for

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Template:
    """Compile a chat template.

    Raises:
        ChatFormatError: it is no valid template.
    """
    if len(source) > MAX_TEMPLATE_CHARACTERS:
        raise ChatFormatError(
            f"the model's chat template has {len(source)} characters, more than"
            f" {MAX_TEMPLATE_CHARACTERS}"
        )
    try:
        return _environment().from_string(source)
    except TemplateError as error:
        raise ChatFormatError(f"the model's chat template cannot be read: {error}") from error


def parse_template(source: str) -> nodes.Template:
    """Return the syntax tree of a template that `compile_template` accepted."""
    return _environment().parse(source)


def run_template(template: Template, variables: Mapping[str, Any]) -> str:
    """Return the rendered text.

    Raises:
        ChatFormatError: the template refused the conversation, failed or wrote too much.
    """
    pieces: list[str] = []
    length = 0
    environment = template.environment
    assert isinstance(environment, BoundedEnvironment)
    environment.begin()
    try:
        for piece in template.generate(**variables):
            length += len(piece)
            if length > MAX_PROMPT_BYTES:
                raise ChatFormatError(f"the prompt has more than {MAX_PROMPT_BYTES} characters")
            pieces.append(piece)
    except SecurityError as error:
        raise ChatFormatError(f"the model's chat template was stopped: {error}") from error
    except TemplateError as error:
        raise ChatFormatError(f"the model's chat template refuses this: {error}") from error
    except RecursionError as error:
        raise ChatFormatError("the model's chat template never ends") from error
    except MemoryError as error:
        raise ChatFormatError("the model's chat template needs too much memory") from error
    except _FAULTS as error:
        raise ChatFormatError(f"the model's chat template failed: {error}") from error
    return "".join(pieces)


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, loopcontrols],
    )
    environment.set_filter("tojson", _to_json)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=None if indent is None else min(int(indent), 16),
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
