"""Request fields as rows of a table: how each is checked, and the JSON schema that says the same.

One row serves three readers: `read_fields` (validation), `object_schema` (the OpenAPI document) and
people. Checks refuse with an `HttpError` that names the field, the value and what would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.http_types import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from colibri_cli.gateway.dialects.base import Served

Schema = Mapping[str, Any]
Checker = Callable[[Any, str], Any]  # (value, path of the field) -> what the dialect works with

UNKNOWN_PARAMETER: Final = "unknown_parameter"
UNSUPPORTED_PARAMETER: Final = "unsupported_parameter"
INVALID_VALUE: Final = "invalid_value"
UNSUPPORTED_VALUE: Final = "unsupported_value"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: its check and its schema."""

    check: Checker
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a request body; null always means absent.

    Args:
        name: As in the body.
        kind: What it may hold.
        help: One line for the document.
        default: What an absent field means.
        is_required: Absence is refused.
        needs: Word the engine must have announced for any value that is not neutral.
        neutral: Values that ask for nothing, so that every engine can honour them.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    is_required: bool = False
    needs: str | None = None
    neutral: tuple[Any, ...] = ()


def read_fields(table: Iterable[Field], body: Mapping[str, Any], served: Served) -> dict[str, Any]:
    """Return the value of every field of the table.

    Raises:
        HttpError: 400 for the first field that cannot be honoured.
    """
    values: dict[str, Any] = {}
    for row in table:
        value = body.get(row.name)
        if value is None:
            if row.is_required:
                raise refusal(row.name, f"{row.name} is required")
            values[row.name] = row.default
            continue
        if row.needs is None or row.needs in served.words:
            values[row.name] = row.kind.check(value, row.name)
        elif _is_neutral(value, row.neutral):
            values[row.name] = row.default
        else:
            raise not_announced(row.name)
    return values


def object_schema(table: Iterable[Field]) -> dict[str, Any]:
    """Return the JSON schema of a body with these fields; further ones are allowed."""
    rows = list(table)
    return {
        "type": "object",
        "properties": {row.name: _row_schema(row) for row in rows},
        "required": [row.name for row in rows if row.is_required],
    }


def check_distinct(names: Sequence[str], field: str, where: str) -> None:
    """Refuse declarations that share a name: a call of it could mean either.

    Args:
        names: In the order of the field.
        field: The array they stand in.
        where: What leads from an element to its name, for example ".name".

    Raises:
        HttpError: 400 naming the place of the second one and the name.
    """
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in seen:
            path = f"{field}.{index}{where}"
            raise refusal(
                path,
                f"{path} is {shown(name)}, which {field}.{seen[name]} already declares; names must"
                " differ",
                INVALID_VALUE,
            )
        seen[name] = index


def refusal(param: str, message: str, code: str | None = None) -> HttpError:
    """Return the 400 for one field."""
    return HttpError(400, message, code=code, param=param)


def not_announced(param: str) -> HttpError:
    """Return the 400 for a field the running engine cannot honour."""
    return refusal(
        param,
        f"{param} is not supported by the running engine; leave it out, or serve with an engine"
        " that announces it",
        UNSUPPORTED_PARAMETER,
    )


def shown(value: object) -> str:
    """Return a value for a message: numbers and short texts as they are, anything else by kind."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        # Python refuses to write out integers of thousands of digits
        return repr(value) if abs(value) < 1e18 else "a huge number"
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"a text of {len(value)} characters"
    return "an array" if isinstance(value, list) else "an object"


# ---- kinds ----


def boolean(code: str | None = None) -> Kind:
    """Accept true and false."""

    def check(value: Any, path: str) -> bool:  # noqa: ANN401 - any JSON value
        if not isinstance(value, bool):
            raise refusal(path, f"{path} must be true or false, not {shown(value)}", code)
        return value

    return Kind(check, {"type": "boolean"})


def whole(low: int, high: int | None = None, *, code: str | None = None) -> Kind:
    """Accept whole numbers in a range, no booleans and no fractions."""
    bounds = f"at least {low}" if high is None else f"in {low}..{high}"

    def check(value: Any, path: str) -> int:  # noqa: ANN401 - any JSON value
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusal(path, f"{path} must be a whole number, not {shown(value)}", code)
        if value < low or (high is not None and value > high):
            raise refusal(path, f"{path} must be {bounds}, not {shown(value)}", code)
        return value

    schema = {"type": "integer", "minimum": low}
    return Kind(check, schema if high is None else {**schema, "maximum": high})


def number(low: float, high: float, *, is_low_allowed: bool = True) -> Kind:
    """Accept finite numbers in a range."""
    bounds = f"in {low:g}..{high:g}" if is_low_allowed else f"above {low:g} and at most {high:g}"

    def check(value: Any, path: str) -> float:  # noqa: ANN401 - any JSON value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal(path, f"{path} must be a number, not {shown(value)}")
        if not low <= value <= high or not math.isfinite(value):
            raise refusal(path, f"{path} must be {bounds}, not {shown(value)}")
        if value == low and not is_low_allowed:
            raise refusal(path, f"{path} must be {bounds}, not {shown(value)}")
        return float(value)

    lower = "minimum" if is_low_allowed else "exclusiveMinimum"
    return Kind(check, {"type": "number", lower: low, "maximum": high})


def word(allowed: tuple[str, ...], code: str | None = None) -> Kind:
    """Accept one of several texts."""

    def check(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
        if not isinstance(value, str) or value not in allowed:
            options = ", ".join(allowed)
            raise refusal(path, f"{path} must be one of {options}, not {shown(value)}", code)
        return value

    return Kind(check, {"type": "string", "enum": list(allowed)})


def only(*allowed: Any) -> Kind:  # noqa: ANN401 - any JSON value
    """Accept these values alone: a feature that does not exist here, in its default state."""

    def check(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
        # 1 == True in Python: compare the types too
        if not any(value == one and type(value) is type(one) for one in allowed):
            raise refusal(
                path,
                f"{path} is not supported; leave it out",
                UNSUPPORTED_PARAMETER,
            )
        return value

    return Kind(check, {"enum": list(allowed)})


def anything() -> Kind:
    """Accept whatever comes; the field changes nothing, or is checked elsewhere."""
    return Kind(lambda value, _path: value, {})


def checked_by(check: Checker, schema: Schema) -> Kind:
    """Join a dialect's own check with its schema."""
    return Kind(check, schema)


def _row_schema(row: Field) -> dict[str, Any]:
    schema = dict(row.kind.schema)
    if not row.is_required and schema:
        schema = {"anyOf": [schema, {"type": "null"}]}
    schema["description"] = row.help
    if isinstance(row.default, bool | int | float | str):
        schema["default"] = row.default
    return schema


def _is_neutral(value: object, neutral: tuple[Any, ...]) -> bool:
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)
