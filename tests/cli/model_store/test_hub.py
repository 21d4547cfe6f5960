"""`hf:` models with a hub of the test's own in the place of `huggingface_hub`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli import paths
from colibri_cli.errors import PullError, UsageError
from colibri_cli.model_store.pulling import PullRequest, pull_model
from colibri_cli.model_store.store import find_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.model_store.store import StoredModel

CONFIG = {"model_type": "qwen3_moe", "num_experts": 128}


@dataclass
class Hub:
    """What the repository holds, and what was asked for."""

    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors": b"weights",
            "model.bin": b"never",
        }
    )
    fails_with: Exception | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    def module(self) -> ModuleType:
        module = ModuleType("huggingface_hub")
        module.snapshot_download = self.download  # type: ignore[attr-defined]
        module.HfApi = lambda: SimpleNamespace(model_info=self.info)  # type: ignore[attr-defined]
        return module

    def info(self, repository: str, **options: object) -> SimpleNamespace:
        if self.fails_with:
            raise self.fails_with
        return SimpleNamespace(
            siblings=[
                SimpleNamespace(rfilename=name, size=len(data)) for name, data in self.files.items()
            ]
        )

    def download(self, repository: str, **options: Any) -> None:  # noqa: ANN401
        from fnmatch import fnmatch

        self.asked.append({"repository": repository, **options})
        for name, data in self.files.items():
            if any(fnmatch(name, glob) for glob in options["allow_patterns"]):
                (Path(options["local_dir"]) / name).write_bytes(data)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", found.module())
    return found


def accept(num_bytes: int) -> None:
    del num_bytes


def pull(
    spec: str,
    confirm: Callable[[int], None] = accept,
    **options: Any,  # noqa: ANN401
) -> StoredModel:
    return pull_model(PullRequest(spec, **options), confirm)


def test_a_repository_becomes_a_model_with_its_family(hub: Hub) -> None:
    model = pull("hf:org/Name-1.5", revision="abc")
    assert (model.name, model.family, model.num_experts) == ("Name-1.5", "qwen3_moe", 128)
    assert (model.path / "model.safetensors").read_bytes() == b"weights"
    assert not (model.path / "model.bin").exists()
    assert hub.asked[0]["revision"] == "abc"
    assert find_model("Name-1.5") == model
    assert pull("hf:org/Name-1.5") == model
    assert len(hub.asked) == 1


def test_the_size_is_told_before_and_can_stop_it(hub: Hub) -> None:
    sizes: list[int] = []

    def refuse(num_bytes: int) -> None:
        sizes.append(num_bytes)
        raise UsageError("no")

    with pytest.raises(UsageError):
        pull("hf:org/m", refuse)
    assert sizes == [len(json.dumps(CONFIG)) + len("weights")]
    assert hub.asked == []


def test_a_repository_of_gguf_files_needs_a_choice(hub: Hub) -> None:
    hub.files = {"m.Q4_K_M.gguf": b"GGUF", "m.Q8_0.gguf": b"GGUF"}
    with pytest.raises(PullError, match=r"no \*\.safetensors") as caught:
        pull("hf:org/m")
    assert "--include" in (caught.value.hint or "")
    model = pull("hf:org/m", include=("*Q8_0.gguf",))
    assert model.path.name == "m.Q8_0.gguf"


def test_what_the_hub_says_is_one_line(hub: Hub) -> None:
    hub.fails_with = OSError("404 not found\nand much more")
    with pytest.raises(PullError, match=r"404 not found$"):
        pull("hf:org/m")


def test_bugs_are_not_mistaken_for_the_network(hub: Hub) -> None:
    hub.fails_with = KeyError("siblings")
    with pytest.raises(KeyError):
        pull("hf:org/m")


def test_without_the_extra_the_command_to_install_it_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PullError, match="huggingface_hub") as caught:
        pull("hf:org/m")
    assert "colibri-cli[hf]" in (caught.value.hint or "")


@pytest.mark.parametrize("spec", ["hf:", "hf:org", "hf:org/a/b", "hf:../x", "hf:org/..", "hf:o /m"])
def test_other_forms_are_refused(hub: Hub, spec: str) -> None:
    with pytest.raises(UsageError, match="is not of the form hf:ORG/NAME") as caught:
        pull(spec)
    assert "hf:HuggingFaceTB/SmolLM2-135M-Instruct" in str(caught.value.hint)


def test_names_of_the_starters_are_taken(hub: Hub) -> None:
    with pytest.raises(UsageError, match="built-in"):
        pull("hf:org/demo")
    assert pull("hf:org/demo", name="mine").name == "mine"
    assert paths.models_dir().joinpath("mine").is_dir()
