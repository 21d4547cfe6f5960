"""What a chat template may cost: steps and sizes, counted where a template can make either grow.

jinja2's sandbox keeps a template away from Python; it bounds neither time nor memory. Here every
turn of a loop and every call is a step, and what could build a large value is looked at first:
operators, calls and filters with large numbers, texts that are multiplied by replacing, joining or
padding, and nested lists where they become text. Limits are far above what a prompt needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import wraps
from math import inf
from threading import local
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from colibri_protocol.limits import MAX_PROMPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2.runtime import Context

MAX_STEPS: Final = 2_000_000  # a second or two of Python; long conversations take thousands
MAX_CPU_S: Final = 10.0  # of the rendering thread: steps may work on large texts
_MAX_REPEAT: Final = 1024 * 1024  # longest text or list that `*` may build
_MAX_NUMBER: Final = 1_000_000  # as an argument: widths, counts, precisions
_MAX_INTEGER_BITS: Final = 256
_MAX_ITEMS: Final = 1_000_000  # of lists and mappings, with all that is inside them
_WIDE_FORMAT: Final = re.compile(r"[0-9]{5}")  # "{:99999999}" is a text of that length
_MULTIPLYING: Final = frozenset(
    {"replace", "join", "indent", "wordwrap", "expandtabs", "urlize", "tojson"}
)
_MAX_HELD: Final = MAX_PROMPT_BYTES * 4  # characters of all texts inside a list or mapping
_FORMATTING: Final = frozenset({"format", "format_map"})
_WRITING: Final = frozenset({"tojson", "string", "join", "pprint", "urlencode", "xmlattr"})
_REMOVED: Final = ("lipsum",)  # a text of any length from one number


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """jinja2's sandbox with bounds on steps and sizes.

    One environment may render in several threads; each counts its own steps from `begin` on.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - jinja2's own
        super().__init__(**options, finalize=_written)
        self._count = local()
        for name in _REMOVED:
            self.globals.pop(name, None)
        for name, function in self.filters.items():
            self.set_filter(name, function)

    def set_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Offer a filter, within bounds."""
        self.filters[name] = _bounded_filter(name, function)

    def begin(self) -> None:
        """Start counting anew."""
        self._count.steps = 0
        self._count.end = thread_time() + MAX_CPU_S

    def step(self) -> str:
        """Count one step.

        Raises:
            SecurityError: there were too many.
        """
        steps = getattr(self._count, "steps", 0) + 1
        self._count.steps = steps
        if steps > MAX_STEPS or thread_time() > getattr(self._count, "end", inf):
            raise SecurityError("it takes too long")
        return ""

    def joined(self, *parts: object) -> str:
        """Return what `~` gives."""
        text: str = _sized("".join(str(_written(part)) for part in parts))
        return text

    def call(self, context: Context, obj: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Call something for a template, within bounds."""
        subject = getattr(obj, "__self__", None)
        if subject is self:  # what `_parse` put there
            return obj(*arguments)
        self.step()
        if isinstance(subject, str):
            _check_text_method(getattr(obj, "__name__", ""), subject, arguments)
        _check_numbers((*arguments, *named.values()))
        return _sized(super().call(context, obj, *arguments, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Compute for a template, within bounds."""
        if operator == "*" and not _is_small_product(left, right):
            raise SecurityError("it builds too long a text")
        if operator == "**" and not (_is_number(left, 1e6) and _is_number(right, 64)):
            raise SecurityError("it computes too large a power")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("it uses %-formatting, which is not allowed")
        return _sized(super().call_binop(context, operator, left, right))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.body.insert(0, nodes.ExprStmt(self._method("step"), lineno=loop.lineno))
        for block in tree.find_all(nodes.AssignBlock):
            block.filter = nodes.Filter(block.filter, "string", [], [], None, None)
        self._replace_concat(tree)
        tree.set_environment(self)
        return tree

    def _replace_concat(self, node: nodes.Node) -> None:
        """Make every `a ~ b` below a node a call of `joined`."""
        for field, value in node.iter_fields():
            if isinstance(value, list):
                replaced = [self._without_concat(item) for item in value]
                setattr(node, field, replaced)
            else:
                setattr(node, field, self._without_concat(value))

    def _without_concat(self, value: Any) -> Any:  # noqa: ANN401 - a node, or what a field holds
        if not isinstance(value, nodes.Node):
            return value
        self._replace_concat(value)
        if isinstance(value, nodes.Concat):
            return self._method("joined", *value.nodes)
        return value

    @staticmethod
    def _method(name: str, *arguments: nodes.Expr) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that looks at its arguments first; its marks for jinja2 stay."""
    num_own = 1 if hasattr(function, "jinja_pass_arg") else 0  # the environment comes first

    @wraps(function)
    def bounded(*everything: Any, **named: Any) -> Any:  # noqa: ANN401
        own, arguments = everything[:num_own], everything[num_own:]
        if arguments and isinstance(arguments[0], Iterator):
            arguments = (_counted(arguments[0]), *arguments[1:])
        _check_numbers((*arguments[1:], *named.values()))
        texts = [value for value in arguments if isinstance(value, str)]
        if name in _FORMATTING and any(map(_WIDE_FORMAT.search, texts)):
            raise SecurityError("it writes too wide a number")
        if name in _MULTIPLYING:
            _check_product(arguments, named)
        if name in _WRITING:
            for value in arguments:
                _written(value)
        return _sized(function(*own, *arguments, **named))

    return bounded


def _counted(items: Iterator[Any]) -> Iterator[Any]:
    """Pass on what a filter makes one by one, for as long as all of it could be held."""
    held = 0
    for item in items:
        held += _length(item)
        if held > _MAX_HELD:
            raise SecurityError("it builds too long a list")
        yield item


def _check_text_method(name: str, subject: str, arguments: tuple[Any, ...]) -> None:
    if name in _FORMATTING and _WIDE_FORMAT.search(subject):
        raise SecurityError("it writes too wide a number")
    if name == "translate":
        raise SecurityError("it uses str.translate, which is not allowed")
    if name in _MULTIPLYING:
        _check_product((subject, *arguments), {})


def _check_numbers(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise SecurityError(f"it passes the number {value}, which is too large")


def _check_product(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse where a text would be written once for each piece of another, and be too long."""
    first, *others = [_extent(value) for value in (*values, *named.values())] or [0]
    if first * max(others, default=0) > MAX_PROMPT_BYTES * 16:
        raise SecurityError("it builds too long a text")


def _extent(value: object) -> int:
    """Return how often, or how much of, something would be written at most."""
    if isinstance(value, int):
        return value
    inner = max(map(_length, value), default=0) if isinstance(value, list | tuple) else 0
    return max(_length(value), inner)


def _length(value: object) -> int:
    try:
        return len(value)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _sized(value: Any) -> Any:  # noqa: ANN401 - whatever a template computes
    """Return a value that is not too large."""
    if isinstance(value, str | list | tuple | dict) and len(value) > MAX_PROMPT_BYTES:
        raise SecurityError("it builds too long a text")
    if isinstance(value, list | tuple | dict):
        _written(value)
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise SecurityError("it computes too large a number")
    return value


def _written(value: Any) -> Any:  # noqa: ANN401 - whatever a template writes
    """Return a value whose text is not too long, though lists hold one another many times."""
    if not isinstance(value, list | tuple | dict):
        return value
    waiting, seen, held = [value], 0, 0
    while waiting:
        inner = waiting.pop()
        items = [*inner, *inner.values()] if isinstance(inner, dict) else inner
        seen += len(items)
        held += sum(len(item) for item in items if isinstance(item, str))
        if seen > _MAX_ITEMS or held > _MAX_HELD:
            raise SecurityError("it writes too long a list")
        waiting += [item for item in items if isinstance(item, list | tuple | dict)]
    return value


def _is_number(value: object, limit: float) -> bool:
    return isinstance(value, int | float) and abs(value) <= limit


def _is_small_product(left: Any, right: Any) -> bool:  # noqa: ANN401
    if isinstance(left, int | float) and isinstance(right, int | float):
        return True
    sequence, factor = (right, left) if isinstance(left, int) else (left, right)
    try:
        return isinstance(factor, int) and len(sequence) * factor <= _MAX_REPEAT
    except TypeError:
        return True  # not a sequence: Python itself says what is wrong
