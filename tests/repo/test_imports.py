"""Import rules that need the file names; the package-wide ones are contracts in pyproject.toml."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.repo.tree import QUANT_PARTS, ROOT, module_name, package_modules

# Each library → the modules (with what is below them) that may import it.
SOLE_IMPORTERS = {
    "h11": ("colibri_cli.gateway.http1", "colibri_cli.backends.upstreams.http1"),
    "httpx": ("colibri_cli.backends.upstreams", "colibri_cli.quality.fetching"),
    "huggingface_hub": ("colibri_cli.commands.pull", "colibri_cli.models"),
    "jinja2": ("colibri_cli.chat_formats",),
    "markdown_it": ("colibri_cli.terminal",),
    "platformdirs": ("colibri_cli.paths",),
    "prompt_toolkit": ("colibri_cli.chat",),
    "rich": ("colibri_cli.console", "colibri_cli.terminal", "colibri_cli.wrapping"),
    "tokenizers": ("colibri_engine.loader", "colibri_engine.tokenizer"),
    "colibri_engine.kernels._kernels": ("colibri_engine.kernels",),
}

# Folders whose files are alternatives → what else in the folder they may share.
ALTERNATIVES = {
    "colibri_cli/commands": {"base"},
    "engine/colibri_engine/models": {"base"},
    "engine/colibri_engine/quant": {"base", *QUANT_PARTS},
    "engine/colibri_engine/jobs": {"base"},
}


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module that a file imports, and every name it takes from one, dotted."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def is_below(path: Path, folder: str) -> bool:
    return path.is_relative_to(ROOT / folder)


@pytest.mark.parametrize("library", SOLE_IMPORTERS)
def test_a_foreign_layer_has_one_seam(library: str) -> None:
    allowed = SOLE_IMPORTERS[library]
    strays = {
        module_name(path)
        for path in package_modules()
        if not any(is_within(module_name(path), seam) for seam in allowed)
        and any(is_within(name, library) for name in imported(path))
    }
    assert not strays, f"only {allowed} may import {library}"


@pytest.mark.parametrize("folder", ALTERNATIVES)
def test_alternatives_do_not_know_each_other(folder: str) -> None:
    package = module_name(ROOT / folder / "__init__.py")
    inside = {p: p.relative_to(ROOT / folder) for p in package_modules() if is_below(p, folder)}
    own = {path: place.parts[0].removesuffix(".py") for path, place in inside.items()}
    names = set(own.values()) - {"__init__", *ALTERNATIVES[folder]}
    for path, name in own.items():  # one file, or the files of one package
        if name in {"__init__", "registry"}:
            continue
        others = {f"{package}.{other}" for other in names - {name}}
        known = {o for o in others if any(is_within(found, o) for found in imported(path))}
        assert not known, f"{module_name(path)} imports {known}"
