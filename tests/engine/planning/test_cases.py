"""Plans as a whole: memory adds up, more of it never means less, what does not fit says so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.config import read_config
from colibri_engine.experts.budget import step_bytes
from colibri_engine.machine import Memory
from colibri_engine.models.base import ModelConfig
from colibri_engine.planning.cases import Case, Subject, plan
from colibri_engine.planning.forecast import Disk, Machine
from colibri_engine.planning.hits import usual_choices
from colibri_engine.planning.model_sizes import Amount, ExpertLayer, ModelSizes
from colibri_engine.planning.rates import Rate

MB = 1_000_000
RATE = Rate(20e9, 100e9, 10e9)
MACHINE = Machine({"int4": RATE, "f32": RATE}, RATE, 3e-7, Disk(1e9))
NEEDED = 500 * MB + 256 * MB  # resident weights and the process
NUM_EXPERTS = 16
CONTEXT = 4096
# Full conversations, and the buffers of a step of 256 rows of a prompt and one of a reply.
GROWS = 1000 * CONTEXT + step_bytes(257, 512, 256, 2, 1000)


def subject(record_bytes: tuple[int, ...] = (4 * MB, 4 * MB, 6 * MB)) -> Subject:
    config = SimpleNamespace(
        model_type="test", vocab_size=1000, num_layers=4, num_experts=NUM_EXPERTS,
        num_experts_per_token=2, max_positions=4096,
    )  # fmt: skip
    layers = tuple(
        ExpertLayer(number, NUM_EXPERTS, {"int4": Amount(nbytes, 2 * nbytes)}, nbytes)
        for number, nbytes in enumerate(record_bytes, 1)
    )
    sizes = ModelSizes(
        config=cast("ModelConfig", config),
        hidden_size=512,
        expert_width=256,
        file_bytes=500 * MB + NUM_EXPERTS * sum(record_bytes),
        resident={"attention": 400 * MB, "embedding and head": 100 * MB},
        token={"int4": Amount(400 * MB, 800 * MB), "f32": Amount(MB, MB // 4)},
        head={"int4": Amount(50 * MB, 100 * MB)},
        expert_layers=layers,
        draft_layers=(),
        position_bytes=1000,
        position_macs=1000,
    )
    return Subject(cast("Any", None), sizes, usual_choices(NUM_EXPERTS, 2), from_history=False)


def planned(ram: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    config = read_config((), {"SNAP": "model", "COLI_DRAFT": "off"})
    memory = replace(config.memory, ram_bytes=ram, **changes)
    return plan(subject(), Case(replace(config, memory=memory), Memory(ram, ram), MACHINE))


@settings(max_examples=60, deadline=None)
@given(st.integers(700 * MB, 1200 * MB), st.integers(0, 200 * MB))
def test_more_memory_never_gives_fewer_slots_or_hits(ram: int, more: int) -> None:
    less_found, more_found = planned(ram), planned(ram + more)
    if not less_found["runs"]:
        return
    assert more_found["runs"]
    assert more_found["tiers"]["ram"]["experts"] >= less_found["tiers"]["ram"]["experts"]
    assert more_found["hit_rate"] >= less_found["hit_rate"] - 0.02  # drawn, so not quite monotone


@settings(max_examples=60, deadline=None)
@given(st.integers(700 * MB, 1200 * MB))
def test_what_the_memory_is_for_adds_up(ram: int) -> None:
    found = planned(ram)
    tiers = found["tiers"]
    everything = NUM_EXPERTS * 14 * MB
    assert tiers["ram"]["warm_expert_bytes"] + tiers["disk"]["cold_expert_bytes"] == everything
    assert tiers["ram"]["experts"] + tiers["disk"]["experts"] == 3 * NUM_EXPERTS
    if not found["runs"]:
        assert found["missing_bytes"] >= 0
        assert tiers["ram"]["experts"] == tiers["ram"]["cache_slots_per_layer"] == 0
        return
    parts = ("dense", "conversations", "steps", "process", "reads", "warm_expert", "free")
    assert sum(tiers["ram"][f"{part}_bytes"] for part in parts) == ram
    sums = ("dense", "runtime", "expert_cache")
    assert sum(tiers["ram"][f"{part}_bytes"] for part in sums) == ram


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    found = planned(600 * MB)
    assert found["runs"] is False
    # One expert of each layer, and two of each size for reads.
    assert found["needed_bytes"] == NEEDED + GROWS + 14 * MB + 2 * 10 * MB
    assert found["missing_bytes"] == found["needed_bytes"] - 600 * MB
    assert "the least that runs is" in found["reason"]
    assert found["hint"]


def test_a_draft_layer_nobody_uses_takes_no_memory() -> None:
    whole = subject()
    sizes = whole.sizes
    # Its records are on disk, and its experts twice as large.
    more = replace(sizes, file_bytes=sizes.file_bytes + NUM_EXPERTS * 12 * MB)
    config = read_config((), {"SNAP": "model", "COLI_DRAFT": "off"})
    config = replace(config, memory=replace(config.memory, ram_bytes=900 * MB))
    case = Case(config, Memory(900 * MB, 900 * MB), MACHINE)
    with_draft, without = (
        plan(found, case)["tiers"] for found in (replace(whole, sizes=more), whole)
    )
    assert with_draft["disk"].pop("model_bytes") > without["disk"].pop("model_bytes")
    assert with_draft == without


@pytest.mark.parametrize("available", [600 * MB, 20_000 * MB])
def test_a_plan_for_what_others_left_says_so(available: int) -> None:
    config = read_config((), {"SNAP": "model", "COLI_DRAFT": "off"})
    busy = Memory(128_000 * MB, available)
    found = plan(subject(), Case(config, busy, MACHINE))
    assert found["tiers"]["ram"]["budget_bytes"] < available
    (warning,) = found["warnings"]
    assert warning.startswith("most of the memory is in use: ")
    assert f"{available / 1e9:.2f} GB of 128.00 GB" in warning
    for memory in (Memory(128_000 * MB, 70_000 * MB), replace(busy, limit=("a group", available))):
        assert plan(subject(), Case(config, memory, MACHINE))["warnings"] == []


def test_a_cap_leaves_the_rest_free() -> None:
    found = planned(2000 * MB, cap=2, may_raise=False)
    ram = found["tiers"]["ram"]
    assert ram["cache_slots_per_layer"] == ram["max_slots_per_layer"] == 2
    assert found["tiers"]["ram"]["free_bytes"] > 500 * MB
    assert found["mode"] == "streamed"


def test_everything_in_memory_is_read_from_memory() -> None:
    found = planned(2000 * MB)
    assert (found["mode"], found["hit_rate"]) == ("resident", 1.0)
    assert found["decode"]["terms"]["read_s"] == 0.0
    disk = found["tiers"]["disk"]
    assert disk["experts"] == disk["cold_expert_bytes"] == 0
    assert found["tiers"]["ram"]["cache_slots_per_layer"] == NUM_EXPERTS
    assert found["hit_source"] == "everything is in memory"


def test_a_longer_context_takes_the_cache_its_memory() -> None:
    config = read_config((), {"SNAP": "model", "COLI_DRAFT": "off"})
    config = replace(config, memory=replace(config.memory, ram_bytes=900 * MB))
    memory = Memory(900 * MB, 900 * MB)
    short = plan(subject(), Case(config, memory, MACHINE))
    longer = plan(subject(), Case(replace(config, context_length=32768), memory, MACHINE))
    more = 1000 * (32768 - 4096)
    before, after = short["tiers"]["ram"], longer["tiers"]["ram"]
    assert after["conversations_bytes"] - before["conversations_bytes"] == more
    assert after["experts"] < before["experts"]


def test_the_least_that_is_named_runs_and_one_byte_less_does_not() -> None:
    needed = planned(600 * MB)["needed_bytes"]
    assert planned(needed)["runs"]
    assert not planned(needed - 1)["runs"]


def test_experts_stay_in_memory_only_if_full_conversations_do_too() -> None:
    everything = NEEDED + GROWS + NUM_EXPERTS * 14 * MB
    assert planned(everything)["mode"] == "resident"
    assert planned(everything - 1)["mode"] == "streamed"


def test_layers_whose_experts_cannot_be_read_one_by_one_stay_in_memory() -> None:
    whole = subject()
    first, *others = whole.sizes.expert_layers
    fixed = replace(first, record_bytes=None)
    mixed = replace(whole, sizes=replace(whole.sizes, expert_layers=(fixed, *others)))
    config = read_config((), {"SNAP": "model", "COLI_DRAFT": "off"})
    found = plan(mixed, Case(config, Memory(1000 * MB, 1000 * MB), MACHINE))
    assert found["mode"] == "streamed"
    ram = found["tiers"]["ram"]
    assert ram["dense_bytes"] == 500 * MB
    others_bytes = ram["warm_expert_bytes"] - NUM_EXPERTS * first.expert_bytes
    assert 0 < others_bytes < NUM_EXPERTS * sum(layer.expert_bytes for layer in others)
    assert ram["experts"] + found["tiers"]["disk"]["experts"] == 3 * NUM_EXPERTS
    assert ram["max_slots_per_layer"] < NUM_EXPERTS
