"""Schemas of draft 3, which other drafts said in other words."""

from __future__ import annotations

from typing import Any, Final

_DRAFT_3: Final = "json-schema.org/draft-03/"
_DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
_FORMATS: Final = {"ip-address": "ipv4", "host-name": "hostname"}
_TIME: Final = "^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]$"  # later drafts want a zone
_MAPS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_SINGLES: Final = ("items", "additionalItems", "additionalProperties")


def is_draft_3(schema: dict[str, Any]) -> bool:
    """Return whether a schema says that it is of draft 3."""
    return _DRAFT_3 in str(schema.get("$schema", ""))


def from_draft_3(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of draft 3 in the words of draft 4."""
    return {**_converted(schema), "$schema": _DRAFT_4}


def _converted(schema: Any) -> Any:  # noqa: ANN401 - malformed ones are the compiler's to refuse
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key not in {"required", "$schema"}}
    for name in _MAPS:
        if isinstance(result.get(name), dict):
            result[name] = {key: _converted(value) for key, value in result[name].items()}
    for name in _SINGLES:
        value = result.get(name)
        if isinstance(value, list):
            result[name] = [_converted(part) for part in value]
        elif value is not None:
            result[name] = _converted(value)
    if "divisibleBy" in result:
        result["multipleOf"] = result.pop("divisibleBy")
    if isinstance(dependencies := result.get("dependencies"), dict):
        result["dependencies"] = {
            key: [value] if isinstance(value, str) else value for key, value in dependencies.items()
        }
    if required := _required(schema.get("properties")):
        result["required"] = required
    conjuncts = _conjuncts(result)
    if "type" in result:
        result |= _types(result.pop("type"))
    return result | ({"allOf": conjuncts} if conjuncts else {})


def _required(properties: Any) -> list[str]:  # noqa: ANN401
    members = properties.items() if isinstance(properties, dict) else ()
    return [
        name for name, part in members if isinstance(part, dict) and part.get("required") is True
    ]


def _conjuncts(schema: dict[str, Any]) -> list[Any]:
    """Take out what becomes a part of `allOf`."""
    result: list[Any] = []
    if "format" in schema:
        schema["format"] = _FORMATS.get(str(schema["format"]), schema["format"])
        if schema["format"] == "time":
            del schema["format"]
            result.append({"pattern": _TIME})
    if "extends" in schema:
        extended = schema.pop("extends")
        parts = extended if isinstance(extended, list) else [extended]
        result += [_converted(part) for part in parts]
    if "disallow" in schema:
        result.append({"not": _types(schema.pop("disallow"))})
    return result


def _types(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a type, where schemas may stand beside names."""
    kinds = value if isinstance(value, list) else [value]
    if "any" in kinds:
        return {}
    names = [kind for kind in kinds if isinstance(kind, str)]
    alternatives = [_converted(kind) for kind in kinds if not isinstance(kind, str)]
    if not alternatives:
        return {"type": names if isinstance(value, list) else value}
    named: list[Any] = [{"type": names}] if names else []
    return {"anyOf": [*named, *alternatives]}
