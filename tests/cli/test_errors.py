"""One table maps every error to an HTTP status and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import colibri_cli.errors as cli_errors
import colibri_engine.errors as engine_errors
from colibri_cli.errors import ERROR_TABLE, EngineStartError, outcome_of
from colibri_engine.kv_files.layout import Unusable
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = (cli_errors, engine_errors)
EXIT_CODES = {0, 1, 2, 3, 5, 6, 130, 141, 143}


def all_errors(base: type[ColibriError] = ColibriError) -> Iterator[type[ColibriError]]:
    yield base
    for child in base.__subclasses__():
        yield from all_errors(child)


def test_every_error_has_a_row() -> None:
    assert Unusable in all_errors()  # one that stands in a module of its own
    assert {error.default_code for error in all_errors()} <= set(ERROR_TABLE)
    assert all(module.ColibriError is ColibriError for module in MODULES)


def test_every_row_is_of_an_error_and_in_range() -> None:
    codes = {error.default_code for error in all_errors()} | {"internal_error", "no_model"}
    assert set(ERROR_TABLE) <= codes
    for outcome in ERROR_TABLE.values():
        assert 400 <= outcome.http_status <= 599
        assert outcome.exit_code in EXIT_CODES


def test_the_code_an_engine_failed_with_decides() -> None:
    assert outcome_of(EngineStartError("x", code="checkpoint_error")).exit_code == 3
    assert outcome_of(EngineStartError("x", code="something_new")).exit_code == 6
