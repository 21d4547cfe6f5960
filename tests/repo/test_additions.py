"""Each file in a folder of alternatives keeps the folder's contract, or fails by name."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.repo.tree import QUANT_PARTS, ROOT, module_name, package_modules

COMMANDS = ROOT / "colibri_cli" / "commands"
MODELS = ROOT / "engine" / "colibri_engine" / "models"
QUANT = ROOT / "engine" / "colibri_engine" / "quant"


def alternatives(folder: Path, *, besides: Collection[str] = ()) -> list[str]:
    others = {"__init__", "base", "registry", *besides}
    found = package_modules()
    packages = [p.parent for p in found if p.stem == "__init__" and p.parent.parent == folder]
    modules = [p for p in found if p.parent == folder and p.stem not in others]
    return [module_name(p) for p in (*modules, *packages)]


@pytest.mark.parametrize("name", alternatives(COMMANDS))
def test_a_command_module_offers_a_command_or_an_app(name: str) -> None:
    module = importlib.import_module(name)
    offered = [word for word in ("command", "app") if hasattr(module, word)]
    assert offered, f"{name} has neither `command` nor `app`"
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", alternatives(MODELS))
def test_a_model_module_offers_its_config_and_its_model(name: str) -> None:
    module = importlib.import_module(name)
    assert hasattr(module.Config, "from_checkpoint")
    assert hasattr(module.Model, "forward")
    assert hasattr(module.Model, "make_cache")


@pytest.mark.parametrize("name", alternatives(QUANT, besides=QUANT_PARTS))
def test_a_weight_format_offers_pack_and_unpack(name: str) -> None:
    module = importlib.import_module(name)
    if not hasattr(module, "FORMAT"):
        pytest.fail(f"{name} has no FORMAT")
    assert callable(module.FORMAT.unpack)
