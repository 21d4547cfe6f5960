"""The command line starts without what it does not need yet."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "rich", "typer", "colibri_engine", "tokenizers", "jinja2", "httpx", "asyncio")


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    code = (
        f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    return set(output.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    ["import colibri_cli.main", "from colibri_cli.main import main; main(['--version'])"],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    assert modules_after(statement) & set(HEAVY) == set()


def test_the_protocol_needs_only_the_standard_library() -> None:
    before = modules_after("pass")
    new = modules_after("import colibri_protocol.messages, colibri_protocol.settings") - before
    assert new - {"colibri_protocol"} <= set(sys.stdlib_module_names)
