"""What the doctor and the plan accept an engine starts with, and what they refuse it refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colibri_engine import machine, startup
from colibri_engine.config import read_config
from colibri_engine.errors import InsufficientMemory
from colibri_engine.experts.budget import PROCESS_BYTES
from colibri_engine.jobs import inspect
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.machine import Memory
from colibri_engine.memory_plan import bytes_per_position, open_store, place_experts
from colibri_engine.models.registry import load_model
from colibri_engine.planning.model_sizes import model_sizes, sizes_of
from colibri_engine.planning.placement import expected_placement
from tests.engine.conversion.rig import convert
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import write_hf
from tests.fakes.tiny_variants import write_variant

GB = 1_000_000_000
LONG = {"COLI_CTX": "200000", "COLI_KV_SLOTS": "4", "COLI_KV_SAVE": "0", "COLI_USAGE_SAVE": "0"}


@pytest.fixture(autouse=True)
def _memory_of_this_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may come and go: what is available stands in the words that are compared."""
    found = machine.memory()
    monkeypatch.setattr(machine, "memory", lambda: found)


class Said:
    """Takes what a job says."""

    def __init__(self) -> None:
        self.stages: dict[str, Any] = {}

    def say(self, _word: str, text: str) -> None:
        body = json.loads(text)
        self.stages[body["stage"]] = body


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    source = write_container(directory / "container", n_routed_experts=8).path
    return restream(source, directory / "stream")


def doctors_view(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> dict[str, Any]:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    said = Said()
    inspect.run([environ["SNAP"]], said)  # type: ignore[arg-type]
    found: dict[str, Any] = said.stages["memory"]
    return found


def test_room_for_conversations_counts_for_everyone(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**LONG, "SNAP": str(stream)}
    config = read_config((), environ)
    with closing(open_checkpoint(stream)) as checkpoint:
        sizes = sizes_of(checkpoint, config)
        tight = replace(config, memory=replace(config.memory, ram_bytes=1))
        with pytest.raises(InsufficientMemory) as caught:
            expected_placement(checkpoint, sizes, tight, machine.memory())
    conversations = sizes.position_bytes * config.context_length * config.num_slots
    assert conversations > 100_000_000
    least = caught.value.needed_bytes
    assert least > sizes.resident_bytes + conversations

    enough = {**environ, "COLI_RAM_GB": f"{(least + 1) / GB:.9f}"}
    assert doctors_view(monkeypatch, enough)["is_streamed"] is True
    engine = startup.load(read_config((), enough)).engine
    assert engine.report()["experts"] is not None
    engine.close()

    short = {**environ, "COLI_RAM_GB": f"{(least - 1) / GB:.9f}"}
    said = doctors_view(monkeypatch, short)["error"]
    with pytest.raises(InsufficientMemory) as refused:
        startup.load(read_config((), short))
    assert said["message"] == refused.value.message
    assert "for conversations" in said["message"]


def test_what_is_foreseen_is_what_the_loaded_model_gets(stream: Path) -> None:
    environ = {**LONG, "SNAP": str(stream)}
    memory = Memory(4 * GB, 4 * GB)
    least = read_config((), environ)
    with closing(open_checkpoint(stream)) as checkpoint:
        sizes = sizes_of(checkpoint, least)
        fixed = expected_placement(checkpoint, sizes, least, memory).placement.needs.nbytes
        ram = fixed + sizes.expert_bytes // 2
        config = replace(least, memory=replace(least.memory, ram_bytes=ram))
        expected = expected_placement(checkpoint, sizes, config, memory)
        store = open_store(checkpoint, config.memory)
        model = load_model(checkpoint, store=store, with_draft_layer=False)
        found = place_experts(store, model, config, memory)
    assert expected.streams
    assert tuple(layer.cache.capacity for layer in store.layers) == expected.held
    found.close()


def test_the_draft_layers_cache_is_part_of_a_conversation(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "model", "glm_moe_dsa", num_nextn_predict_layers=1).path
    with closing(open_checkpoint(path)) as checkpoint:
        without = model_sizes(checkpoint).position_bytes
        with_it = model_sizes(checkpoint, with_draft_layer=True).position_bytes
        model = load_model(checkpoint)
    assert getattr(model, "can_draft", False)
    assert with_it - without == bytes_per_position(model.make_draft_cache())  # type: ignore[attr-defined]
    assert without == bytes_per_position(model.make_cache())


def test_rows_in_bf16_take_half_of_what_conversations_take(stream: Path) -> None:
    environ = {**LONG, "SNAP": str(stream)}
    config = read_config((), environ)
    half = read_config((), {**environ, "COLI_KV_DTYPE": "bf16"})
    with closing(open_checkpoint(stream)) as checkpoint:
        needs = [
            expected_placement(
                checkpoint, sizes_of(checkpoint, each), each, Memory(4 * GB, 4 * GB)
            ).placement.needs.kv_bytes
            for each in (config, half)
        ]
    assert needs[0] == pytest.approx(2 * needs[1], rel=0.01)


def test_a_dense_model_whose_conversations_may_outgrow_the_budget_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_hf(tmp_path / "model").path
    environ = {**LONG, "SNAP": str(path), "COLI_RAM_GB": "0.3"}
    assert "more than the budget of 0.30 GB" in doctors_view(monkeypatch, environ)["excess"]
    with caplog.at_level(logging.WARNING):
        startup.load(read_config((), environ)).engine.close()
    assert "more than the budget of 0.30 GB" in caplog.text


# ---- checkpoints whose experts cannot be read one by one ----------------------------------------


def write_published(directory: Path, way: str) -> Path:
    if way == "mxfp4":
        return write_variant(directory, "gpt_oss", mxfp4=True)
    if way == "int2":
        return write_container(directory, format_name="int2-row").path
    return write_hf(directory, "glm4_moe", dtype="F8_E4M3", n_routed_experts=64).path


@pytest.mark.parametrize("way", ["fp8 blocks", "mxfp4", "int2"])
def test_what_cannot_be_streamed_is_refused_until_it_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    source = write_published(tmp_path / "source", way)
    small = {"COLI_CTX": "64", "COLI_KV_SLOTS": "1", "COLI_KV_SAVE": "0", "COLI_USAGE_SAVE": "0"}
    environ = {**small, "SNAP": str(source)}
    with closing(open_checkpoint(source)) as checkpoint:
        sizes = sizes_of(checkpoint, read_config((), environ))
    needed = sizes.resident_bytes + sizes.expert_bytes + PROCESS_BYTES
    tight = {**environ, "COLI_RAM_GB": f"{(needed - 1) / GB:.9f}"}
    with pytest.raises(InsufficientMemory, match="of memory") as caught:
        startup.load(read_config((), tight))
    assert "coli convert" in str(caught.value.hint)
    assert caught.value.needed_bytes == needed
    assert doctors_view(monkeypatch, tight)["error"]["message"] == caught.value.message
    # What its files take is less than what it takes once it is loaded.
    assert (way == "int2") == ("in files" in caught.value.message)

    convert(source, tmp_path / "converted")
    environ["SNAP"] = str(tmp_path / "converted")
    with closing(open_checkpoint(tmp_path / "converted")) as checkpoint:
        config = read_config((), environ)
        sizes = sizes_of(checkpoint, config)
        everything = Memory(4 * GB, 4 * GB)
        fixed = expected_placement(checkpoint, sizes, config, everything).placement.needs.nbytes
    half = {**environ, "COLI_RAM_GB": f"{(fixed + sizes.expert_bytes * 0.7) / GB:.9f}"}
    engine = startup.load(read_config((), half)).engine
    assert engine.report()["experts"] is not None
    engine.close()
