"""Modules, functions and kernel variants stay small enough to read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.repo.tree import CSRC, ROOT, files_with, package_modules, relative

MODULE_LIMIT = 600
FUNCTION_LIMIT = 60
VARIANT_LIMIT = 300

# path → why it may be longer. Add a line only with a reason a reader would accept.
LONG_MODULES: dict[str, str] = {}
# "path:function" → why.
LONG_FUNCTIONS: dict[str, str] = {}
LONG_VARIANTS: dict[str, str] = {}


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def measured_modules() -> list[Path]:
    tools = [f for f in files_with(".py") if f.is_relative_to(ROOT / "benchmarks")]
    return [*package_modules(), *tools, *files_with(".cpp", ".h", under=CSRC)]


def long_functions(path: Path) -> list[tuple[str, int]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = ((f.name, (f.end_lineno or f.lineno) - f.lineno + 1) for f in functions)
    return [(name, length) for name, length in lengths if length > FUNCTION_LIMIT]


def test_modules_stay_below_the_limit() -> None:
    too_long = {
        relative(path): count
        for path in measured_modules()
        if (count := line_count(path)) > MODULE_LIMIT and relative(path) not in LONG_MODULES
    }
    assert not too_long, f"longer than {MODULE_LIMIT} lines, split by concept: {too_long}"


def test_functions_stay_below_the_limit() -> None:
    modules = [p for p in measured_modules() if p.suffix == ".py"]
    too_long = {
        f"{relative(path)}:{name}": length
        for path in modules
        for name, length in long_functions(path)
    }
    for name in LONG_FUNCTIONS:
        too_long.pop(name, None)
    assert not too_long, f"longer than {FUNCTION_LIMIT} lines: {too_long}"


def test_kernel_variants_stay_below_the_limit() -> None:
    variants = [p for p in files_with(".cpp", under=CSRC / "ops") if "_" in p.stem]
    too_long = {
        relative(path): count
        for path in variants
        if (count := line_count(path)) > VARIANT_LIMIT and relative(path) not in LONG_VARIANTS
    }
    assert not too_long, f"longer than {VARIANT_LIMIT} lines: {too_long}"


@pytest.mark.parametrize("listed", sorted({**LONG_MODULES, **LONG_VARIANTS}) or ["README.md"])
def test_listed_exceptions_still_exist(listed: str) -> None:
    assert (ROOT / listed).is_file()
