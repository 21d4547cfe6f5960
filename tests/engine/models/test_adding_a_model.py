"""The model of docs/adding-a-model.md, put where the page says, equals its reference."""

from __future__ import annotations

import ast
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch
from colibri_engine.loader import hf_checkpoint
from colibri_engine.loader.architectures import MODEL_TYPES
from colibri_engine.models import registry
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes import oracle_models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

pytestmark = pytest.mark.oracle

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adding-a-model.md"
BLOCK = re.compile(r"^```python\n# (\S+?)(?:: (\w+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = "qwen2"


def blocks() -> dict[tuple[str, str], str]:
    """Return the page's blocks by file and name within it."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return {(file, name): body for file, name, body in found}


def load_module(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"colibri_engine.models.{NAME}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oracle_models.Oracle]:
    """Put every block in its place, and take all of them back at the end."""
    page = blocks()
    directory = tmp_path_factory.mktemp("page")
    file = directory / f"{NAME}.py"
    file.write_text(page.pop((f"engine/colibri_engine/models/{NAME}.py", "")))
    modules: Any = page.pop(("engine/colibri_engine/models/registry.py", "MODULES"))
    names: Any = page.pop(("engine/colibri_engine/loader/architectures.py", "MODEL_TYPES"))
    configs: Any = page.pop(("tests/fakes/oracle_models.py", "CONFIGS"))
    assert not page, "a block of the page is tested by nothing"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, f"colibri_engine.models.{NAME}", load_module(file))
        patch.setattr(registry, "MODULES", registry.MODULES | ast.literal_eval(modules))
        known = MODEL_TYPES + ast.literal_eval(names)
        patch.setattr(hf_checkpoint, "MODEL_TYPES", known)
        patch.setattr(oracle_models, "CONFIGS", oracle_models.CONFIGS | ast.literal_eval(configs))
        yield oracle_models.build(NAME, directory / "checkpoint")
    sys.modules.pop(f"colibri_engine.models.{NAME}", None)


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_the_pages_model_equals_the_reference(oracle: oracle_models.Oracle, chunk: int) -> None:
    logits = forward_in_chunks(load(oracle.path, "float"), oracle.ids, chunk)
    assert np.abs(logits - oracle.logits).max() <= 1e-4


def test_the_pages_model_answers_as_the_reference(oracle: oracle_models.Oracle) -> None:
    model = load(oracle.path, "float")
    cache, batch = model.make_cache(), Batch()
    start = oracle_models.PROMPT_LENGTH
    ids = list(oracle.ids[:start])
    batch.set([(cache, 0, start)])
    logits = model.forward(oracle.ids[:start], batch, [start - 1])
    for position in range(start, len(oracle.ids)):
        ids.append(int(logits[0].argmax()))
        batch.set([(cache, position, 1)])
        logits = model.forward(np.array(ids[-1:], np.int32), batch, [0])
    assert ids == oracle.ids.tolist()


def test_the_pages_model_refuses_what_it_does_not_implement(oracle: oracle_models.Oracle) -> None:
    module = sys.modules[f"colibri_engine.models.{NAME}"]
    config = {"model_type": NAME, "vocab_size": 8, "hidden_size": 32, "num_attention_heads": 2}
    config |= {"num_hidden_layers": 1, "intermediate_size": 8}
    assert module.Config.from_checkpoint(config).num_layers == 1
    with pytest.raises(UnsupportedModel, match="use_sliding_window"):
        module.Config.from_checkpoint(config | {"use_sliding_window": True})
    assert oracle.path.is_dir()
