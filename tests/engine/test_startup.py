"""What is checked and told while a model is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from colibri_engine import startup
from colibri_engine.admission import generation_value
from colibri_engine.config import read_config
from colibri_engine.engine_config import DraftConfig, EngineConfig
from colibri_engine.errors import CheckpointError, InsufficientMemory, RequestRefused
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.machine import Memory
from colibri_engine.memory_plan import check_memory
from colibri_engine.notices import NOTICE
from colibri_protocol.messages import RequestOptions
from tests.fakes.tiny_checkpoint import vocabulary, write_hf, write_json
from tests.fakes.tiny_gguf import write_gguf_model

if TYPE_CHECKING:
    from colibri_engine.loader.base import Checkpoint

GB = 1_000_000_000


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_hf(directory)
    write_json(
        directory / "generation_config.json",
        {"temperature": 0.25, "top_p": 0.5, "top_k": 11, "eos_token_id": [2, 3]},
    )
    return directory


def config(path: Path, **changes: Any) -> EngineConfig:  # noqa: ANN401
    return replace(read_config((), {"SNAP": str(path), "COLI_KV_SAVE": "0"}), **changes)


def test_the_model_is_described(model_dir: Path) -> None:
    loaded = startup.load(config(model_dir, num_slots=3, context_length=99))
    info = loaded.model_info.data
    expected = {
        "id": "tiny", "family": "llama", "context_length": 99, "train_context_length": 256,
        "num_layers": 2, "num_experts": 0, "num_experts_per_token": 0, "num_slots": 3,
        "mixture_layers": [],
        "numerics": "default", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
    }  # fmt: skip
    assert {name: info[name] for name in expected} == expected
    assert "<|im_start|>" in str(info["chat_template"])
    assert info["special_tokens"]["<|user|>"] == 3  # type: ignore[index]
    assert info["vocab_size"] == loaded.tokenizer.vocab_size
    assert info["architecture"]["hidden_size"] == 64  # type: ignore[index]
    for name in ("file_bytes", "resident_bytes", "num_threads"):
        assert int(str(info[name])) > 0
    assert info["isa"]


def test_end_tokens_are_the_union_of_every_source(model_dir: Path) -> None:
    info = startup.load(config(model_dir)).model_info.data
    assert info["eos_token_ids"] == [0, 2, 3]  # <|endoftext|> though nobody listed it


def test_a_request_that_says_nothing_gets_what_was_set_then_what_the_model_prefers(
    model_dir: Path,
) -> None:
    own = startup.load(config(model_dir)).model_info.data["generation"]
    assert own == {
        "temperature": 0.25, "top_p": 0.5, "top_k": 11, "min_p": 0.0, "repetition_penalty": 1.0,
        "max_tokens": 256,
    }  # fmt: skip
    bound = startup.load(config(model_dir, temperature=1.5, top_p=1.0)).model_info.data
    assert bound["generation"]["temperature"] == 1.5  # type: ignore[index]
    assert bound["generation"]["top_p"] == 1.0  # type: ignore[index]


@pytest.mark.parametrize("value", [None, "hot", True, -1, 9, float("nan")])
def test_a_damaged_preference_of_the_model_is_not_used_and_that_is_said(
    caplog: pytest.LogCaptureFixture, value: object
) -> None:
    assert generation_value({"temperature": value}, "temperature", 0.7) == 0.7
    told = [] if value is None else [f"temperature = {value!r} cannot be used; 0.7 is taken"]
    assert [record.getMessage().partition("own ")[2] for record in caplog.records] == told


def test_a_request_may_ask_for_greedy_against_every_preference(model_dir: Path) -> None:
    engine = startup.load(config(model_dir)).engine
    assert engine._admission._sampling(RequestOptions(temperature=0.0)).temperature == 0.0
    assert engine._admission._sampling(RequestOptions()).top_k == 11


class _Weights:
    """A checkpoint of which only the size and the names are looked at."""

    def __init__(self, nbytes: int, *names: str) -> None:
        self.nbytes = nbytes
        self._names = names

    def names(self) -> tuple[str, ...]:
        return self._names


def refused(weights: _Weights, memory: Memory, ram_bytes: int | None = None) -> InsufficientMemory:
    limits = replace(read_config((), {"SNAP": "."}).memory, ram_bytes=ram_bytes)
    with pytest.raises(InsufficientMemory) as caught:
        check_memory(cast("Checkpoint", weights), weights.nbytes, limits, memory)
    return caught.value


def test_weights_that_fit_are_accepted() -> None:
    limits = read_config((), {"SNAP": "."}).memory
    weights = cast("Checkpoint", _Weights(3 * GB))
    check_memory(weights, 3 * GB, limits, Memory(total=8 * GB, available=4 * GB))


def test_weights_that_cannot_fit_are_refused_with_the_figures() -> None:
    error = refused(_Weights(20 * GB), Memory(total=64 * GB, available=16 * GB))
    for figure in ("20.26 GB", "16.00 GB", "64.00 GB"):
        assert figure in error.message
    assert "smaller model" in str(error.hint)


def test_a_container_limit_is_named() -> None:
    memory = Memory(total=256 * GB, available=7 * GB, limit=("/sys/fs/cgroup/box", 8 * GB))
    error = refused(_Weights(20 * GB), memory)
    assert "/sys/fs/cgroup/box to 8.00 GB" in error.message
    assert "raise that limit" in str(error.hint)


def test_what_was_asked_for_limits_too_and_a_mixture_may_be_converted() -> None:
    weights = _Weights(20 * GB, "model.layers.0.mlp.experts.0.up_proj.weight")
    error = refused(weights, Memory(total=64 * GB, available=50 * GB), ram_bytes=6 * GB)
    assert "6.00 GB are available (set by --ram)" in error.message
    assert "raise --ram" in str(error.hint)
    assert "coli convert" in str(error.hint)


def test_memory_that_runs_out_while_loading_is_an_error_by_name(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_args: object, **_options: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(startup, "load_model", exhausted)
    with pytest.raises(InsufficientMemory, match="memory ran out"):
        startup.load(config(model_dir))


def test_the_files_are_closed_after_a_failure(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Path] = []
    opened = open_checkpoint(model_dir)
    close = opened.close

    def close_and_note() -> None:
        close()
        closed.append(opened.path)

    monkeypatch.setattr(opened, "close", close_and_note)
    monkeypatch.setattr("colibri_engine.startup.open_checkpoint", lambda *_: opened)
    monkeypatch.setattr("colibri_engine.machine.memory", lambda: Memory(1, 1))
    with pytest.raises(InsufficientMemory):
        startup.load(config(model_dir))
    assert closed == [model_dir]


def test_a_path_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        startup.load(config(tmp_path / "nothing"))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= NOTICE]


def test_a_context_beyond_what_the_model_was_trained_for_is_told(
    model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    startup.load(config(model_dir, context_length=256, is_context_given=True))
    startup.load(config(model_dir, context_length=4096))  # nobody asked for that many
    assert told(caplog) == []
    startup.load(config(model_dir, context_length=257, is_context_given=True))
    (line,) = told(caplog)
    assert "a context of 257 tokens (--ctx) is more than the 256" in line


def write_with_fewer_rows(directory: Path, container: str, rows: int) -> Path:
    if container == "gguf":
        directory.mkdir()
        return write_gguf_model(directory / "m.gguf", vocab_size=rows).path
    return write_hf(directory, vocab_size=rows).path


@pytest.mark.parametrize("container", ["gguf", "directory"])
def test_tokens_without_weights_are_told_and_only_prompts_that_hold_one_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, container: str
) -> None:
    """A fine-tuned model's token for padding is often one: the model runs without it."""
    tokens, _ = vocabulary()
    path = write_with_fewer_rows(tmp_path / "m", container, len(tokens) - 1)
    loaded = startup.load(config(path))
    (line,) = told(caplog)
    assert f"knows {len(tokens)} tokens, of which the model has {len(tokens) - 1}" in line
    assert f"({tokens[-1]!r})" in line
    admission = loaded.engine._admission
    admission.admit(RequestOptions(), np.array([len(tokens) - 2], np.int32))
    with pytest.raises(RequestRefused, match=f"holds token {len(tokens) - 1}, for which the model"):
        admission.admit(RequestOptions(), np.array([0, len(tokens) - 1], np.int32))


@pytest.mark.parametrize("container", ["gguf", "directory"])
def test_an_end_token_without_weights_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, container: str
) -> None:
    path = write_with_fewer_rows(tmp_path / "m", container, 2)
    loaded = startup.load(config(path))
    assert "('<|im_end|>', '<|user|>', '<|assistant|>', …)" in told(caplog)[-1]
    assert loaded.model_info.data["eos_token_ids"] == [0]  # and not <|im_end|>


def test_drafts_that_can_only_come_with_a_grammar_are_told(
    model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(NOTICE)
    startup.load(config(model_dir, context_length=99, drafts=DraftConfig("grammar")))
    assert told(caplog) == [
        "drafts come from grammars alone: replies without a grammar or schema have none"
    ]
    caplog.clear()
    grammar = tmp_path / "schema.json"
    grammar.write_text('{"type": "boolean"}')
    startup.load(
        config(model_dir, context_length=99, drafts=DraftConfig("grammar", grammar_path=grammar))
    )
    assert told(caplog) == []
    startup.load(
        config(model_dir, context_length=99, drafts=DraftConfig("ngram", grammar_path=grammar))
    )
    assert told(caplog) == ["COLI_DRAFT_GRAMMAR is not used: nothing is drafted from grammars"]


def test_weights_that_are_gone_or_may_not_be_read_are_named_in_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_hf(tmp_path / "model").path
    (weights,) = path.glob("*.safetensors")
    away = tmp_path / "away"
    weights.rename(away)
    weights.symlink_to(tmp_path / "nothing")
    with pytest.raises(CheckpointError) as gone:
        startup.load(config(path))
    assert gone.value.message == f"cannot read {weights}: No such file or directory"
    lost = f"{weights.name} is a link to a file that is gone"
    assert gone.value.hint == f"{lost}: copy or pull the model again"
    weights.unlink()
    away.rename(weights)

    opened = os.open

    def refused(name: str, flags: int, *more: int, **options: Any) -> int:  # noqa: ANN401
        if str(name) == str(weights):
            raise PermissionError(13, "Permission denied", name)
        return opened(name, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)  # for root no mode forbids it
    with pytest.raises(CheckpointError) as kept:
        open_checkpoint(path)
    assert kept.value.message == f"cannot read {weights}: Permission denied"
    assert kept.value.hint == f"allow reading {weights.name} and its directory (chmod)"
