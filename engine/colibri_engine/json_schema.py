"""JSON schemas in the words the grammar compiler has.

The compiler knows no `not`, `if`, `dependencies` or overlapping `oneOf`, nor anything of draft 3.
Here they become what it does know, keywords of one schema alone in `json_schema_words`. The result
never admits a value that the schema refuses; it may admit fewer where "anything but" cannot be said
exactly. What would stay unenforced is refused.
Source: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from colibri_engine import json_schema_words as words
from colibri_engine.errors import BadOption
from colibri_engine.json_schema_draft3 import from_draft_3, is_draft_3

if TYPE_CHECKING:
    from collections.abc import Callable

Schema: TypeAlias = "dict[str, Any] | bool"

_TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLES: Final = ("items", "additionalItems", "additionalProperties")
_MAX_STEPS: Final = 50_000  # copies made while rewriting one schema
_MAX_REFERENCES: Final = 16  # followed one behind the other
_MAX_BOUND: Final = 1e15  # the compiler's number ranges reach a little further
# Bound → the type it is about and what holds exactly where it does not.
_NUMBER_BOUNDS: Final = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
_SIZE_BOUNDS: Final = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}


def enforceable(
    schema: Schema, are_disjoint: Callable[[str, str], bool], *, splits_one_of: bool = False
) -> dict[str, Any]:
    """Return a schema that the compiler can enforce wholly.

    Args:
        schema: Of any draft, told by `$schema`; without it the latest.
        are_disjoint: Whether the compiler sees that no text matches both patterns.
        splits_one_of: Write each `oneOf` as "this and none of the others". Only for those that
            overlap: the compiler knows by itself that distinct cases exclude each other.

    Raises:
        BadOption: Something in it cannot be enforced; with the reason.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    try:
        return _Rewriter(schema, are_disjoint, splits_one_of=splits_one_of).whole()
    except RecursionError:
        raise BadOption("grammar", "the schema is nested too deeply") from None


class _Rewriter:
    def __init__(
        self,
        root: dict[str, Any],
        are_disjoint: Callable[[str, str], bool],
        *,
        splits_one_of: bool,
    ) -> None:
        # This key would change how the compiler works: a client could make it ignore keywords.
        root = {name: value for name, value in root.items() if name != "x-guidance"}
        self._root = from_draft_3(root) if is_draft_3(root) else root
        self._are_disjoint = are_disjoint
        self._splits_one_of = splits_one_of
        self._num_steps = 0
        self._num_references = 0

    def whole(self) -> dict[str, Any]:
        return self._rewritten(self._root)

    # ---- rewriting ----------------------------------------------------------------------------

    def _any(self, schema: Any) -> Any:  # noqa: ANN401 - malformed ones are the compiler's to refuse
        return self._rewritten(schema) if isinstance(schema, dict) else schema

    def _rewritten(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the same schema; what is added comes last, so that references still lead there."""
        self._step()
        added = self._replacements(schema)
        taken = {"not", "if", "then", "else", "dependencies", "dependentRequired"}
        taken |= {"dependentSchemas"} | ({"oneOf"} if self._splits_one_of else set())
        result = {name: value for name, value in schema.items() if name not in taken}
        words.take_unevaluated(schema, result)
        added += words.take_format(result)
        added += words.take_property_names(result, self._target)
        added += words.take_unique(result, self._target)
        words.join_patterns(result, self._disjoint)
        for name in _MAPS:
            if isinstance(result.get(name), dict):
                result[name] = {key: self._any(value) for key, value in result[name].items()}
        for name in _LISTS:
            if isinstance(result.get(name), list):
                result[name] = [self._any(value) for value in result[name]]
        for name in _SINGLES:
            result |= {name: self._any(result[name])} if name in result else {}
        _make_bounds_plain(result)
        _check_key_count(result)
        if added:
            others = result.get("allOf")
            result["allOf"] = [*(others if isinstance(others, list) else []), *added]
        return result

    def _disjoint(self, first: str, second: str) -> bool:
        self._step()
        return self._are_disjoint(first, second)

    def _replacements(self, schema: dict[str, Any]) -> list[Any]:
        """Return what stands for the keywords that the compiler does not know."""
        added = []
        if "not" in schema:
            added.append(self._refused(schema["not"], "not"))
        if "if" in schema and ("then" in schema or "else" in schema):
            added.append(self._conditional(schema))
        for name, needed in _dependencies(schema).items():
            is_absent = {"properties": {name: False}}
            then = {"required": needed} if isinstance(needed, list) else self._any(needed)
            added.append({"anyOf": [is_absent, then]})
        cases = schema.get("oneOf")
        if self._splits_one_of and isinstance(cases, list):
            alternatives = []
            for place, case in enumerate(cases):
                others = [*cases[:place], *cases[place + 1 :]]
                parts = [self._any(case), *(self._negated(other) for other in others)]
                alternatives.append({"allOf": parts})
            added.append({"anyOf": alternatives})
        return added

    def _conditional(self, schema: dict[str, Any]) -> dict[str, Any]:
        condition = schema["if"]
        then = {"allOf": [self._any(condition), self._any(schema.get("then", True))]}
        otherwise = {"allOf": [self._refused(condition, "if"), self._any(schema.get("else", True))]}
        return {"anyOf": [then, otherwise]}

    def _refused(self, schema: Any, keyword: str) -> Schema:  # noqa: ANN401
        negated = self._negated(schema)
        if negated is False and schema not in (True, {}):
            raise BadOption("grammar", f"cannot be compiled: this {keyword!r} cannot be enforced")
        return negated

    # ---- negation -----------------------------------------------------------------------------

    def _negated(self, schema: Any) -> Schema:  # noqa: ANN401
        """Return a schema of values that this one refuses: of all of them where that can be said.

        A value is refused if any one keyword refuses it, so each gives one alternative, and one of
        which nothing is known may be left out.
        """
        self._step()
        if isinstance(schema, bool):
            return not schema
        if not isinstance(schema, dict):
            raise BadOption("grammar", "a schema is neither an object nor true or false")
        ways: list[Schema] = []
        reference = schema.get("$ref")
        if isinstance(reference, str):
            ways.append(self._negated_reference(reference))
        if "type" in schema:
            ways.append(_other_types(schema["type"]))
        for name in ("const", "enum"):
            if name in schema:
                values = [schema[name]] if name == "const" else schema[name]
                ways += _other_values(values) if isinstance(values, list) else []
        ways += _outside_bounds(schema)
        ways += self._negated_object(schema)
        ways += self._negated_combinations(schema)
        kept = [way for way in ways if way is not False]
        if any(way is True for way in kept):
            return True
        return {"anyOf": kept} if kept else False

    def _negated_object(self, schema: dict[str, Any]) -> list[Schema]:
        ways: list[Schema] = []
        required = schema.get("required")
        if isinstance(required, list):
            ways += [{"type": "object", "properties": {name: False}} for name in required]
        properties = schema.get("properties")
        for name, value in properties.items() if isinstance(properties, dict) else ():
            if (other := self._negated(value)) is not False:
                ways.append({"type": "object", "properties": {name: other}, "required": [name]})
        return ways

    def _negated_combinations(self, schema: dict[str, Any]) -> list[Schema]:
        ways: list[Schema] = []
        if "not" in schema:
            ways.append(self._any(schema["not"]))
        every, some = schema.get("allOf"), schema.get("anyOf")
        if isinstance(every, list):
            ways += [self._negated(part) for part in every]
        if isinstance(some, list):
            parts = [self._negated(part) for part in some]
            if False not in parts:
                ways.append({"allOf": parts})
        return ways

    def _negated_reference(self, reference: str) -> Schema:
        target = self._target(reference)
        if target is None or self._num_references >= _MAX_REFERENCES:
            return False
        self._num_references += 1
        try:
            return self._negated(target)
        finally:
            self._num_references -= 1

    def _target(self, reference: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return what a reference inside the schema leads to; None for any other."""
        target: Any = self._root if reference.startswith("#") else None
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                return None
            target = target[name]
        return target

    def _step(self) -> None:
        self._num_steps += 1
        if self._num_steps > _MAX_STEPS:
            raise BadOption("grammar", "the schema is too large when written out")


def _dependencies(schema: dict[str, Any]) -> dict[str, Any]:
    """Return property → the properties that must be there with it, or a schema."""
    result: dict[str, Any] = {}
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        members = schema.get(keyword, {})
        if not isinstance(members, dict):
            raise BadOption("grammar", f"{keyword!r} is not an object")
        for name, needed in members.items():
            if name in result:  # both keywords may speak of one property
                both = [
                    {"required": n} if isinstance(n, list) else n for n in (result[name], needed)
                ]
                result[name] = {"allOf": both}
            else:
                result[name] = needed
    return result


def _other_types(types: Any) -> Schema:  # noqa: ANN401
    """Return all the other types; that numbers are no integers cannot be said."""
    known = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
    named = {"number" if name == "integer" else name for name in known}
    others = [name for name in _TYPES if name not in named]
    return {"type": others} if others else False


def _other_values(values: list[Any]) -> list[Schema]:
    """Return what is none of these: other types, longer strings, greater and smaller numbers."""
    kinds = {_type_of(value) for value in values}
    ways: list[Schema] = [_other_types(list(kinds))]
    if texts := [value for value in values if isinstance(value, str)]:
        ways.append({"type": "string", "minLength": max(map(len, texts)) + 1})
    if numbers := [value for value in values if _type_of(value) == "number"]:
        ways.append({"type": "number", "exclusiveMinimum": max(numbers)})
        ways.append({"type": "number", "exclusiveMaximum": min(numbers)})
    truths = [value for value in (True, False) if not any(value is other for other in values)]
    if "boolean" in kinds and truths:
        ways.append({"enum": truths})
    return ways


def _type_of(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):  # also an int
        return "boolean"
    names = {type(None): "null", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "number")


def _outside_bounds(schema: dict[str, Any]) -> list[Schema]:
    bounds = dict(schema)
    _make_bounds_plain(bounds, clamps=False)
    ways: list[Schema] = []
    for name, other in _NUMBER_BOUNDS.items():
        if _is_number(bounds.get(name)):
            outside = {"type": "number", other: bounds[name]}
            _make_bounds_plain(outside)
            ways.append(outside)
    for name, (kind, other, step) in _SIZE_BOUNDS.items():
        if _is_number(bounds.get(name)) and bounds[name] + step >= 0:
            ways.append({"type": kind, other: bounds[name] + step})
    return ways


def _make_bounds_plain(schema: dict[str, Any], *, clamps: bool = True) -> None:
    """Write bounds as numbers (older drafts have switches), within what the compiler can do."""
    for name, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        switch = schema.get(exclusive)
        if isinstance(switch, bool):
            del schema[exclusive]
            if switch and name in schema:
                schema[exclusive] = schema.pop(name)
        sign = 1 if name == "maximum" else -1
        for bound in (name, exclusive):
            # A narrower range is still right; one wholly beyond cannot be helped.
            if clamps and _is_number(schema.get(bound)) and schema[bound] * sign > _MAX_BOUND:
                schema[bound] = int(sign * _MAX_BOUND)


def _is_number(value: Any) -> TypeGuard[int | float]:  # noqa: ANN401
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_key_count(schema: dict[str, Any]) -> None:
    """Refuse what the compiler would count wrongly: it lets a key that is not named come twice."""
    least, required = schema.get("minProperties"), schema.get("required")
    if not _is_number(least):
        return
    num_certain = len(set(required)) if isinstance(required, list) else 0
    if least <= num_certain:
        del schema["minProperties"]
    elif least > 1:
        raise BadOption(
            "grammar",
            "cannot be compiled: 'minProperties' above 1 is not enforced; list them in 'required'",
        )
