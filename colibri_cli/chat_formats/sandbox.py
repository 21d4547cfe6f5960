"""The jinja2 environment chat templates run in: sandboxed, bounded, and shaped as they expect.

A template comes from a downloaded checkpoint, so it is untrusted code. It gets no attribute access
to Python internals (jinja2's sandbox), no huge products or powers, and a bound on its output. The
names it may use (`raise_exception`, `strftime_now`, `tojson`, `{% generation %}`, loop controls)
are those of https://huggingface.co/docs/transformers/chat_templating.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from colibri_cli.errors import ChatFormatError
from colibri_protocol.limits import MAX_PROMPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template
    from jinja2.parser import Parser
    from jinja2.runtime import Context

MAX_TEMPLATE_CHARACTERS: Final = 1024 * 1024
_MAX_PRODUCT: Final = 1024 * 1024  # longest text or list a `*` may build, largest exponent result


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`: marks training text; renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type jinja2 asks for

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateSandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox with bounded arithmetic."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        if operator == "*" and not _is_small_product(left, right):
            raise SecurityError("the template builds too long a text")
        if operator == "**" and not (_is_number(left, 1e6) and _is_number(right, 64)):
            raise SecurityError("the template computes too large a power")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("the template uses %-formatting, which is not allowed")
        return super().call_binop(context, operator, left, right)


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
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise ChatFormatError(f"the model's chat template failed: {error}") from error
    return "".join(pieces)


def _environment() -> _TemplateSandbox:
    environment = _TemplateSandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, loopcontrols],
    )
    environment.filters["tojson"] = _to_json
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


def _is_number(value: object, limit: float) -> bool:
    return isinstance(value, int | float) and abs(value) <= limit


def _is_small_product(left: Any, right: Any) -> bool:  # noqa: ANN401
    if isinstance(left, int | float) and isinstance(right, int | float):
        return True
    sequence, factor = (right, left) if isinstance(left, int) else (left, right)
    try:
        return isinstance(factor, int) and len(sequence) * factor <= _MAX_PRODUCT
    except TypeError:
        return True  # not a sequence: Python itself says what is wrong
