"""Keywords of JSON schema that the grammar compiler lacks, said with those it has.

Each function takes one schema apart from what is inside of it, changes it in place, and returns
parts for its `allOf`. What comes out never admits more; it may admit less, where a set of texts is
too involved for a pattern: then the pattern stands for the ordinary ones among them.
Source: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from colibri_engine.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve: TypeAlias = Callable[[str], Any]

MAX_ARRANGEMENTS: Final = 400  # lists without repetition that are written out
_MAX_COMPARED: Final = 64  # patterns of which every pair is looked at
_SAME: Final = {"iri": "uri", "idn-email": "email", "idn-hostname": "hostname"}
# They tell people or code generators something and bound no value.
_REMARKS: Final = frozenset(
    {"password", "path", "file-path", "directory-path", "binary", "float", "double", "int64"}
)
_RANGES: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, None),
}
_COLORS: Final = (
    "aqua|black|blue|fuchsia|gray|green|lime|maroon|navy|olive|orange|purple|red|silver|teal"
    "|white|yellow"
)
_NAME: Final = "[A-Za-z0-9._~-]"
_HEX: Final = "[0-9a-f]"
# One atom of a regex that ECMA 262 and others read alike, with its quantifier; ranges are fixed, so
# that none runs backwards.
_ESCAPE: Final = r"\\[dDwWsSnrt.^$*+?()\[\]{}|/\\-]"
_CLASS: Final = rf"\[\^?(?:[A-Za-z0-9_ ]|a-z|A-Z|0-9|{_ESCAPE})+\]"
_CHARACTER: Final = r"[A-Za-z0-9 _,:;=@#%&~`'\"<>!.-]"
_ATOM: Final = rf"(?:{_CHARACTER}|{_ESCAPE}|{_CLASS})"
_QUANTIFIER: Final = r"(?:[*+?]|\{[0-9]{1,2},?\})?"
_BRANCH: Final = rf"(?:{_ATOM}{_QUANTIFIER})+"
_GROUP: Final = rf"\((?:\?:)?{_BRANCH}(?:\|{_BRANCH})*\){_QUANTIFIER}"
_PATTERNS: Final = {
    "color": f"^(?:#[0-9a-fA-F]{{3}}|#[0-9a-fA-F]{{6}}|{_COLORS})$",
    "json-pointer": "^(?:/(?:[^~/]|~[01])*)*$",
    "relative-json-pointer": "^(?:0|[1-9]{1,3})(?:#|(?:/(?:[^~/]|~[01])*)*)$",
    "uri-reference": (
        f"^(?:[a-z]+://[a-z0-9]+(?:[.-][a-z0-9]+)*|{_NAME}+)?(?:/{_NAME}+)*/?"
        f"(?:\\?(?:{_NAME}|[=&])*)?(?:#{_NAME}*)?$"
    ),
    "uri-template": f"^(?:{_NAME}|[/:?=&]|\\{{[A-Za-z0-9_]+\\}})*$",
    "byte": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "base64url": "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?$",
    "regex": rf"^\^?(?:{_BRANCH}|{_GROUP})+\$?$",
    **{
        f"uuid{version}": (
            f"^{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$"
        )
        for version in range(1, 9)
    },
}
_PATTERNS["iri-reference"] = _PATTERNS["uri-reference"]
_PATTERNS["base64"] = _PATTERNS["byte"]
# The compiler knows these and takes some that are none: 29 February of any year, the year 0, a
# leap second at any time.
_DAY: Final = (
    "(?:[0-9]{4}-(?:[01][0-9]-(?:[01][0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    "|(?:0[13578]|1[02])-31)"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_SECONDS: Final = "[0-9]{2}:[0-9]{2}:[0-5]"
_NARROWER: Final = {
    "date": (f"^{_DAY}$", f"^{_YEAR}"),
    "time": (f"^{_SECONDS}",),
    "date-time": (f"^{_DAY}[Tt]", f"^{_YEAR}", f"[Tt]{_SECONDS}"),
}
_TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
# Beside these, other schemas may have looked at the members of a value.
_IN_PLACE: Final = (
    *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "not"),
    *("dependentSchemas", "dependencies", "contains"),
)
_LENGTHS: Final = ("minLength", "maxLength")
_SAYS_NOTHING: Final = frozenset({"title", "description", "$comment", "default", "examples"})


def take_format(schema: dict[str, Any]) -> list[Any]:
    """Say formats that the compiler does not know, or not exactly, by patterns and bounds."""
    name = schema.get("format")
    if not isinstance(name, str):
        return []
    if name in _SAME:
        schema["format"] = _SAME[name]
    elif name in _NARROWER:
        return [{"pattern": pattern} for pattern in _NARROWER[name]]
    elif name in _REMARKS:
        del schema["format"]
    elif name in _PATTERNS:
        del schema["format"]
        return [{"pattern": _PATTERNS[name]}]
    elif name in _RANGES:
        del schema["format"]
        low, high = _RANGES[name]
        return [{"minimum": low} | ({} if high is None else {"maximum": high})]
    return []


def take_unevaluated(schema: dict[str, Any], result: dict[str, Any]) -> None:
    """Say `unevaluatedProperties` and `unevaluatedItems` where nothing else evaluates any.

    Args:
        schema: As the client wrote it.
        result: What is changed.
    """
    if any(name in schema for name in _IN_PLACE):
        return  # the compiler refuses them by name
    if "unevaluatedProperties" in result:
        result.setdefault("additionalProperties", result.pop("unevaluatedProperties"))
    if "unevaluatedItems" in result:
        value = result.pop("unevaluatedItems")
        is_tuple = isinstance(result.get("items"), list)
        result.setdefault("additionalItems" if is_tuple else "items", value)


# ---- names of members -------------------------------------------------------------------------


def take_property_names(schema: dict[str, Any], resolve: Resolve) -> list[Any]:
    """Say `propertyNames` by the members that are named or match a pattern.

    Raises:
        BadOption: The names are described by other keywords than those of texts.
    """
    if "propertyNames" not in schema:
        return []
    parts: list[Any] = []
    for names in _chain(schema.pop("propertyNames"), resolve):
        parts += _named_only(names)
    return parts


def _chain(schema: Any, resolve: Resolve) -> list[Any]:  # noqa: ANN401 - any JSON value
    """Return a schema without its reference, and what the reference leads to."""
    found: list[Any] = []
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and len(found) < 8:
        found.append({key: value for key, value in schema.items() if key != "$ref"})
        schema = resolve(schema["$ref"])
    return [*found, schema]


def _named_only(names: Any) -> list[Any]:  # noqa: ANN401 - any JSON value
    if names is True:
        return []
    if names is False:
        return [{"additionalProperties": False}]
    if not isinstance(names, dict):
        raise BadOption("grammar", "'propertyNames' is neither an object nor true or false")
    known = {"type", "enum", "const", "pattern", *_LENGTHS}
    if odd := next((key for key in names if key not in known | _SAYS_NOTHING), None):
        raise BadOption(
            "grammar", f"cannot be compiled: 'propertyNames' with {odd!r} cannot be enforced"
        )
    parts: list[Any] = []
    kinds = names.get("type", "string")
    if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        parts.append({"additionalProperties": False})
    for values in ([names["const"]] if "const" in names else None, names.get("enum")):
        if isinstance(values, list):
            members = {value: True for value in values if isinstance(value, str)}
            parts.append({"properties": members, "additionalProperties": False})
    patterns = [names["pattern"]] if "pattern" in names else []
    if any(name in names for name in _LENGTHS):
        patterns.append(f"^(?s:.){{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$")
    if len(patterns) > 1:
        raise BadOption(
            "grammar",
            "cannot be compiled: 'propertyNames' with both a pattern and a length cannot be"
            " enforced; write the length into the pattern",
        )
    parts += [{"patternProperties": {p: True}, "additionalProperties": False} for p in patterns]
    return parts


def join_patterns(schema: dict[str, Any], are_disjoint: Callable[[str, str], bool]) -> None:
    """Make patterns that may match one name into one, whose members satisfy all their schemas."""
    members = schema.get("patternProperties")
    if not isinstance(members, dict) or not 2 <= len(members) <= _MAX_COMPARED:
        return  # of more, the compiler refuses those that overlap
    groups: list[list[str]] = []
    for pattern in members:
        touching = [
            group for group in groups if not all(are_disjoint(pattern, other) for other in group)
        ]
        groups = [group for group in groups if group not in touching]
        groups.append([*itertools.chain.from_iterable(touching), pattern])
    schema["patternProperties"] = {
        "|".join(f"(?:{pattern})" for pattern in group) if len(group) > 1 else group[0]: {
            "allOf": [members[pattern] for pattern in group]
        }
        if len(group) > 1
        else members[group[0]]
        for group in groups
    }


# ---- lists without repetition -----------------------------------------------------------------


def take_unique(schema: dict[str, Any], resolve: Resolve) -> list[Any]:
    """Say `uniqueItems` by writing all lists out, where there are few.

    Raises:
        BadOption: There are too many.
    """
    is_unique = schema.get("uniqueItems")
    if not isinstance(is_unique, bool):
        return []  # absent, or the compiler's to refuse
    kinds = schema.get("type", list(_TYPES))
    kinds = kinds if isinstance(kinds, list) else [kinds]
    most = schema.get("maxItems")
    if not is_unique or "array" not in kinds or (isinstance(most, int) and most <= 1):
        del schema["uniqueItems"]
        return []
    values = None if "prefixItems" in schema else _few_values(schema.get("items"), resolve)
    if values is None or not _are_few_lists(len(values), most):
        raise BadOption(
            "grammar",
            "cannot be compiled: 'uniqueItems' is enforced only where the items are an enum that"
            f" makes at most {MAX_ARRANGEMENTS} lists; shorten the enum or set 'maxItems', or leave"
            " it out",
        )
    del schema["uniqueItems"]
    lengths = range(_longest(len(values), most) + 1)
    lists = [
        list(chosen) for length in lengths for chosen in itertools.permutations(values, length)
    ]
    others = [kind for kind in kinds if kind != "array"]
    return [{"anyOf": [{"type": others}, {"enum": lists}]} if others else {"enum": lists}]


def _few_values(items: Any, resolve: Resolve) -> list[Any] | None:  # noqa: ANN401 - any JSON value
    """Return the values an item can have, each once; None where it can have others."""
    values: list[Any] | None = None
    for schema in _chain(items, resolve):
        if not isinstance(schema, dict):
            continue
        if isinstance(schema.get("enum"), list):
            values = schema["enum"]
        elif "const" in schema:
            values = [schema["const"]]
        elif schema.get("type") == "boolean":
            values = [False, True]
    if values is None:
        return None
    return list({json.dumps(_plain(value), sort_keys=True): value for value in values}.values())


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value in which equal numbers look alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def _longest(num_values: int, most: Any) -> int:  # noqa: ANN401 - any JSON value
    return min(num_values, most) if isinstance(most, int) else num_values


def _are_few_lists(num_values: int, most: Any) -> bool:  # noqa: ANN401 - any JSON value
    if num_values > MAX_ARRANGEMENTS:
        return False
    lengths = range(_longest(num_values, most) + 1)
    return sum(math.perm(num_values, length) for length in lengths) <= MAX_ARRANGEMENTS
