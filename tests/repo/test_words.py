"""The repository speaks of the product, not of how or where it was made."""

from __future__ import annotations

import re

import pytest

from tests.repo.tree import relative, tracked_files

# Each with an example that must be caught and one that must not.
FORBIDDEN = {
    "a path on someone's machine": r"(?<![\w.$}])/(?:work|home|root|Users)/[\w.]",
    "a file beside the repository": r"\.\./shared\b|\bshared/(?:spec|cases|decisions|style)",
    "a document nobody else has": r"\b(?:decisions|style|known-failures|PLAN|PYTHON|KERNELS)\.md\b",
    "a number without its list": r"\b(?:(?-i:[KG]\d\d)|(?:item|issue) #?\d+)\b|(?-i:\([KGCW]\d+\))",
    "a package registry's address": r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com))\b",
    "a word about the making": r"\b(?:sub-?agents?|co-?authored-by|as an AI)\b",
}
EXAMPLES = {
    "a path on someone's machine": ("see /home/me/x", "${HOME}/home/x and a/work/b"),
    "a file beside the repository": ("read ../shared/x", "the shared expert"),
    "a document nobody else has": ("by decisions" + ".md", "README.md"),
    "a number without its list": ("as G" + "13 says", "case 1: Q4_K"),
    "a package registry's address": ("https://pypi" + ".org/x", "PyPI"),
    "a word about the making": ("a sub" + "agent", "an agent"),
}
# This file has to name them; a lock file lists addresses by nature.
EXEMPT = {"tests/repo/test_words.py", "web/package-lock.json"}
TEXT = {".py", ".pyi", ".md", ".toml", ".txt", ".cpp", ".h", ".sh", ".ts", ".tsx", ".json", ""}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_pattern_catches_what_it_should_and_nothing_else(what: str) -> None:
    bad, good = EXAMPLES[what]
    assert re.search(FORBIDDEN[what], bad)
    assert not re.search(FORBIDDEN[what], good)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.IGNORECASE)
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT or relative(path) in EXEMPT:
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{relative(path)}:{number}: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if pattern.search(line)
        ]
    assert not found, "\n".join([what, *found])
