"""What the answer of `coli run` must look like: a JSON schema, or a grammar."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import UsageError
from colibri_cli.options import path_of
from colibri_protocol.messages import Grammar

if TYPE_CHECKING:
    from colibri_cli.backends.base import Generation

_MAX_BYTES: Final = 1 << 20
_REMEDIES: Final = {
    "--schema": 'name a file with a JSON schema, or write one out: {"type": "object", ...}',
    "--grammar": "name a file with a grammar in GBNF",
}


def constrained(generation: Generation, schema: str | None, grammar: str | None) -> Generation:
    """Return the generation with the constraint that one of the options names.

    Args:
        generation: How to generate else.
        schema: A JSON schema as text, or the name of a file with one.
        grammar: Name of a file with a grammar in GBNF.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    if schema is not None:
        is_text = schema.lstrip().startswith("{")
        found = Grammar("json_schema", _schema(schema if is_text else _read("--schema", schema)))
    elif grammar is not None:
        found = Grammar("gbnf", _read("--grammar", grammar))
    else:
        return generation
    return replace(generation, options=replace(generation.options, grammar=found))


def _schema(text: str) -> str:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"--schema is no JSON ({error})",
            hint='give a schema, {"type": "object", ...}, or the name of a file with one',
        ) from error
    if not isinstance(body, dict):
        raise UsageError("--schema is not an object", hint='begin with {"type": "object", ...}')
    return json.dumps(body, ensure_ascii=False)


def _read(flag: str, name: str) -> str:
    path = path_of(flag, name)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{flag}: {name!r} cannot be read ({reason})", hint=_REMEDIES[flag]
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: {name!r} is not text in UTF-8", hint=_REMEDIES[flag]) from error
    if len(data) > _MAX_BYTES or not text.strip():
        raise UsageError(
            f"{flag}: {name!r} is empty, or larger than {_MAX_BYTES:,} bytes",
            hint=_REMEDIES[flag],
        )
    return text
