"""Where experts lie changes no bit of the logits, and each is read as seldom as can be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.engine_config import ReadConfig
from colibri_engine.errors import ExpertReadFailed
from colibri_engine.experts.demand import Demand
from colibri_engine.kernels import ReadPriority
from tests.engine.conversion.rig import convert
from tests.engine.experts.streaming_rig import (
    conversation,
    load_resident,
    load_streamed,
    run_steps,
)
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from colibri_engine.experts.store import StreamedLayer
    from colibri_engine.kernels import Rows

NUM_EXPERTS = 8
PER_TOKEN = 2


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    source = write_container(
        directory / "container",
        n_routed_experts=NUM_EXPERTS,
        num_experts_per_tok=PER_TOKEN,
        num_hidden_layers=4,  # the first one is dense
    ).path
    return restream(source, directory / "stream")


@pytest.mark.parametrize("capacity", [1, 2, 4, NUM_EXPERTS])
@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_slots_change_no_bit(stream: Path, capacity: int, numerics: str) -> None:
    resident = load_resident(stream, numerics)
    steps = conversation(resident.config.vocab_size)
    wanted = run_steps(resident, steps)
    model, store = load_streamed(stream, capacity, numerics=numerics)
    for found, expected in zip(run_steps(model, steps), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert store.counters.bytes_read > 0
    np.testing.assert_array_equal(model.routing_counts, resident.routing_counts)


@pytest.mark.parametrize("format_name", ["e8-iq3-lattice", "fp8-e4m3-b128"])
@pytest.mark.parametrize("capacity", [1, NUM_EXPERTS])
def test_converted_containers_are_streamed_with_the_bits_of_the_originals(
    tmp_path: Path, format_name: str, capacity: int
) -> None:
    """On every instruction set: the container in memory, its converted form streamed."""
    source = write_container(
        tmp_path / "container", format_name=format_name, n_routed_experts=NUM_EXPERTS
    ).path
    convert(source, tmp_path / "stream")
    steps = conversation(load_resident(source).config.vocab_size)
    active = kernels.active_isa()
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            wanted = run_steps(load_resident(source), steps)
            model, store = load_streamed(tmp_path / "stream", capacity)
            assert len(store.layers) > 0
            for found, expected in zip(run_steps(model, steps), wanted, strict=True):
                np.testing.assert_array_equal(found, expected, err_msg=isa)
            store.close()
    finally:
        kernels.set_isa(active)


@pytest.mark.parametrize("mode", ["io_uring", "threads"])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("working", [2, 3, 20])
def test_the_way_of_reading_changes_no_bit(
    stream: Path, mode: str, direct: bool, working: int
) -> None:
    resident = load_resident(stream)
    steps = conversation(resident.config.vocab_size, seed=8)
    try:
        model, _ = load_streamed(stream, 1, reads=ReadConfig(mode, direct=direct), working=working)
    except RuntimeError as exc:
        pytest.skip(f"hardware: {exc}")
    for found, wanted in zip(run_steps(model, steps), run_steps(resident, steps), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("looks_ahead", [True, False])
@pytest.mark.parametrize("working", [2, 6, 30])
def test_reading_ahead_changes_no_bit(stream: Path, looks_ahead: bool, working: int) -> None:
    resident = load_resident(stream)
    steps = conversation(resident.config.vocab_size, seed=5)
    model, store = load_streamed(stream, 2, working=working, looks_ahead=looks_ahead)
    for found, wanted in zip(run_steps(model, steps), run_steps(resident, steps), strict=True):
        np.testing.assert_array_equal(found, wanted)
    counters = store.counters
    assert (counters.ahead > 0) == looks_ahead
    assert (counters.late + counters.prefetched > 0) == looks_ahead
    assert counters.late + counters.prefetched + counters.cancelled <= counters.ahead


def test_guesses_that_do_not_come_true_become_fewer(stream: Path) -> None:
    model, _ = load_streamed(stream, 1, working=2 * NUM_EXPERTS)
    guesses = model._layers[1].mixture.experts.ahead  # type: ignore[attr-defined]
    assert guesses in model._layers[2].mixture.experts.guesses  # type: ignore[attr-defined]
    assert (guesses.precision, guesses._num_guesses(1)) == (0.5, PER_TOKEN)
    for _ in range(60):
        guesses._begun.update([0, 1])
        guesses._is_guess = True
        guesses.settle([5, 6])
    assert guesses.precision < 0.05
    assert guesses._num_guesses(1) == 1  # so that there is news of them
    for _ in range(60):
        guesses._begun.update([0, 1])
        guesses._is_guess = True
        guesses.settle([0, 1])
    assert guesses.precision > 0.9
    assert guesses._num_guesses(1) == PER_TOKEN


def test_the_mixture_beyond_the_next_one_is_guessed_once_the_next_ones_reads_have_begun(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, store = load_streamed(stream, 1, working=2 * NUM_EXPERTS)
    begun: list[int] = []
    fetch = store.fetch

    def noted(layer: StreamedLayer, expert: int, priority: ReadPriority) -> bool:
        if priority == ReadPriority.SPECULATIVE:
            begun.append(layer.number)
        return fetch(layer, expert, priority)

    monkeypatch.setattr(store, "fetch", noted)
    dense = model._layers[0].ahead  # type: ignore[attr-defined]
    look = dense.start

    def started(normed: Rows) -> None:
        look(normed)
        begun.append(-1)

    monkeypatch.setattr(dense, "start", started)
    run_steps(model, [[(0, [3])]])
    ahead = begun[: begun.index(-1)]
    assert set(ahead) == {0, 1}
    assert ahead == sorted(ahead)


def test_a_long_prompt_guesses_nothing_of_the_mixture_beyond_the_next_one(stream: Path) -> None:
    model, store = load_streamed(stream, 1, working=2 * NUM_EXPERTS)
    run_steps(model, [[(0, [3])], [(0, list(range(60)))]])
    beyond = model._layers[0].ahead._beyond  # type: ignore[attr-defined]
    assert beyond is not None
    assert not beyond._waiting
    assert not beyond._begun
    store.close()


def test_what_has_arrived_before_it_is_asked_for_is_found_and_not_late(stream: Path) -> None:
    _, store = load_streamed(stream, 1, working=4)
    layer = store.layers[0]
    assert store.fetch(layer, 3, ReadPriority.SPECULATIVE)
    while store._reader._engine.num_open:  # it arrives, and nobody takes it in
        time.sleep(0.001)
    demand = Demand(store, layer, [3])
    assert (store.counters.prefetched, store.counters.late) == (1, 0)
    assert (store.counters.hits, store.counters.misses) == (1, 0)
    assert [number for number, _ in demand.ready()] == [3]
    demand.done([3])
    store.close()


def test_behind_the_last_mixture_no_more_is_read_than_one_row_may_want(stream: Path) -> None:
    model, store = load_streamed(stream, 1, working=2 * NUM_EXPERTS)
    first = model._layers[1].mixture.experts  # type: ignore[attr-defined]
    guesses = next(guess for guess in first.guesses if guess._router is None)
    for precision, most in ((1.0, PER_TOKEN), (0.5, PER_TOKEN // 2), (0.0, 1)):
        guesses.precision = precision
        assert {guesses._num_guesses(rows) for rows in (1, 4, 8)} == {most}
    guesses.precision = 1.0
    before = store.counters.ahead
    run_steps(model, [[(number, [3 + number]) for number in range(6)]])
    begun = guesses._begun | set(guesses._waiting)
    assert len(begun) <= PER_TOKEN
    assert store.counters.ahead > before


def test_a_long_prompt_reads_the_next_layer_while_this_one_is_computed(stream: Path) -> None:
    model, store = load_streamed(stream, 1, working=2 * NUM_EXPERTS)
    run_steps(model, [[(0, list(range(60)))]])
    layers = len(store.layers)
    assert layers > 1
    assert store.counters.ahead == layers * NUM_EXPERTS  # the dense layer in front does so, too
    # each no more than once, and hardly one in vain
    assert store.counters.bytes_read <= layers * NUM_EXPERTS * store.layers[0].records.nbytes
    assert store.counters.late + store.counters.prefetched >= layers * (NUM_EXPERTS - 2)


def test_weights_of_streamed_experts_are_not_read_at_the_start(stream: Path) -> None:
    resident = load_resident(stream)
    model, store = load_streamed(stream, 1)
    assert resident.resident_bytes - model.resident_bytes == resident.expert_bytes > 0
    assert model.expert_bytes == 0
    assert store.counters.bytes_read == 0


def test_an_expert_is_read_once_per_step_however_many_rows_chose_it(stream: Path) -> None:
    model, store = load_streamed(stream, 1)
    before = model.routing_counts
    assert before is not None
    reads = 0
    for step in conversation(model.config.vocab_size):
        run_steps(model, [step])
        now = model.routing_counts
        assert now is not None
        distinct = int((now > before).sum())
        before = now
        counters = store.counters
        assert counters.hits + counters.misses - reads == distinct
        reads = counters.hits + counters.misses


def test_nothing_is_read_that_no_row_chose_when_nothing_is_read_ahead(stream: Path) -> None:
    model, store = load_streamed(stream, 1, looks_ahead=False)
    run_steps(model, conversation(model.config.vocab_size))
    record = store.layers[0].records.nbytes
    assert store.counters.bytes_read == record * store.counters.misses


def test_everything_in_memory_is_read_once(stream: Path) -> None:
    model, store = load_streamed(stream, NUM_EXPERTS)
    steps = conversation(model.config.vocab_size)
    for _ in range(3):
        run_steps(model, steps)
        most = sum(layer.records.nbytes * NUM_EXPERTS for layer in store.layers)
        assert store.counters.bytes_read <= most
    before = store.counters.misses
    run_steps(model, steps)
    assert store.counters.misses == before


def test_slots_are_neither_lost_nor_doubled(stream: Path) -> None:
    model, store = load_streamed(stream, 2, working=3)
    run_steps(model, conversation(model.config.vocab_size))
    while store.has_reads:  # for the next token
        store.collect(wait=True)
    layers = store.layers
    (pool,) = {id(layer.pool): layer.pool for layer in layers}.values()
    held = [layer.cache.slot(e) or 0 for layer in layers for e in layer.cache.experts]
    free = []
    while (slot := pool.take()) is not None:
        free.append(slot)
    assert sorted([*held, *free]) == list(range(pool.arena.num_slots))
    assert pool.arena.num_slots == 2 * len(layers) + 3


def test_a_cut_file_fails_the_step_by_name_and_the_next_one_is_as_good_as_new(
    tmp_path: Path,
) -> None:
    source = write_container(tmp_path / "container", n_routed_experts=NUM_EXPERTS).path
    path = restream(source, tmp_path / "stream")
    resident = load_resident(path)
    steps = conversation(resident.config.vocab_size)
    wanted = run_steps(resident, steps)
    model, store = load_streamed(path, 2)
    file = path / "out-00000.safetensors"
    data = file.read_bytes()
    last = max(place.offset for layer in store.layers for place in layer.records.places)
    with file.open("r+b") as opened:
        opened.truncate(last + 100)
    with pytest.raises(ExpertReadFailed) as caught:
        run_steps(model, steps * 20)
    record = store.layers[0].records.nbytes
    for word in (file.name, "mlp.experts.", f"{record} bytes wanted at {last}, 100 found"):
        assert word in caught.value.message
    assert "Success" not in caught.value.message
    with file.open("r+b") as opened:
        opened.write(data)
    for found, expected in zip(run_steps(model, steps), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("format_name", ["int4-grouped", "fp8-e4m3-b128"])
def test_a_record_that_cannot_give_finite_answers_is_refused(
    tmp_path: Path, format_name: str
) -> None:
    source = write_container(
        tmp_path / "container", format_name=format_name, n_routed_experts=NUM_EXPERTS
    ).path
    path = restream(source, tmp_path / "stream")
    model, store = load_streamed(path, 1)
    layer = store.layers[0]
    down = layer.records.record.parts["down_proj"]
    with (path / "out-00000.safetensors").open("r+b") as file:
        for place in layer.records.places:
            file.seek(place.offset + down.offset + down.layout.codes_nbytes)
            file.write(b"\xff" * 8)
    with pytest.raises(ExpertReadFailed, match=r"experts\.\d holds a scale that is not finite"):
        run_steps(model, [[(0, [1, 2, 3])]])
