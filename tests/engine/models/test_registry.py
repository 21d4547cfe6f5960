"""What the loader lets in, the registry knows, and the other way round."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from colibri_engine import models
from colibri_engine.errors import UnsupportedModel
from colibri_engine.loader.architectures import GGUF_ARCHITECTURES, MODEL_TYPES
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import MODULES, load_model
from tests.fakes.tiny_checkpoint import write_hf

NOT_MODELS = {"__init__", "base", "registry"}


def test_the_loader_opens_exactly_what_the_registry_loads() -> None:
    assert sorted(MODEL_TYPES) == sorted(MODULES)


def test_every_model_file_is_registered() -> None:
    folder = Path(models.__path__[0])
    files = {path.stem for path in folder.glob("*.py")} - NOT_MODELS
    files |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert files == set(MODULES.values())


@pytest.mark.parametrize("model_type", sorted(MODULES))
def test_every_registered_name_leads_to_a_model(model_type: str) -> None:
    module = import_module(f"colibri_engine.models.{MODULES[model_type]}")
    assert callable(module.Config.from_checkpoint)
    assert callable(module.Model.forward)


@pytest.mark.parametrize("architecture", sorted(GGUF_ARCHITECTURES))
def test_every_gguf_architecture_stands_for_a_registered_model(architecture: str) -> None:
    assert GGUF_ARCHITECTURES[architecture] in MODULES


def test_an_unknown_architecture_is_named_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hf(tmp_path, "llama")
    monkeypatch.delitem(MODULES, "llama")
    with (
        closing(open_checkpoint(tmp_path)) as checkpoint,
        pytest.raises(UnsupportedModel, match="'llama'") as caught,
    ):
        load_model(checkpoint)
    assert all(name in str(caught.value.hint) for name in MODULES)
