"""An error that a user meets is found on a page, by the words they see."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from tests.repo.tree import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
ERROR_TEXTS = importlib.import_module("error_texts")

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| (.+?) \| .+ \|$", PAGE.split("## Speed")[0], re.MULTILINE)


@pytest.mark.parametrize("said", [m for m in MESSAGES if m != "the message says"])
def test_a_message_of_the_page_is_one_the_program_has(said: str) -> None:
    sources = ERRORS + (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    sources += "".join(p.read_text("utf-8") for p in (ROOT / "colibri_cli").rglob("*.py"))
    for piece in re.split(r"…|'[A-Z…]+'|, or ", said):
        words = piece.strip(" '")
        assert words in sources, f"{said!r}: nothing says {words!r}"


def test_the_errors_that_are_met_first_are_found() -> None:
    from colibri_cli.errors import ModelNotGiven
    from colibri_protocol.errors import ContextLengthExceeded, KernelUnavailable

    errors = [ModelNotGiven(), ContextLengthExceeded(9, 5), KernelUnavailable("x")]
    for error in errors:
        assert ERROR_TEXTS.cell(error.hint or "") in ERRORS
        assert error.code in ERRORS


def test_there_are_hundreds_and_each_has_words() -> None:
    found = ERROR_TEXTS.texts()
    assert len(found) > 500
    assert all(ERROR_TEXTS.cell(text.message) in ERRORS for text in found)
