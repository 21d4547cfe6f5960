"""What pyproject.toml promises about the wheel."""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from typing import Any

import pytest

from tests.repo.tree import PACKAGE_ROOTS, ROOT, module_name, package_modules


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere() -> None:
    import colibri_cli

    assert colibri_cli.__version__ == pyproject()["project"]["version"]


def test_every_package_goes_into_the_wheel() -> None:
    listed = {ROOT / path for path in pyproject()["tool"]["scikit-build"]["wheel"]["packages"]}
    assert listed == {root / name for name, root in PACKAGE_ROOTS.items()}


@pytest.mark.parametrize("name", PACKAGE_ROOTS)
def test_a_package_says_that_it_is_typed(name: str) -> None:
    assert (PACKAGE_ROOTS[name] / name / "py.typed").is_file()


@pytest.mark.parametrize(("script", "target"), pyproject()["project"]["scripts"].items())
def test_a_console_script_leads_to_a_function(script: str, target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function)), script


def test_folders_of_packages_are_packages() -> None:
    folders = {path.parent for path in package_modules()}
    missing = sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file())
    assert not missing, "a folder without __init__.py is left out of the wheel"


@pytest.mark.parametrize("name", [module_name(path) for path in package_modules()])
def test_what_a_module_exports_exists(name: str) -> None:
    if name.endswith("__main__"):
        return
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", ())
    assert len(set(exported)) == len(exported)
    assert [word for word in exported if not hasattr(module, word)] == []
