"""What was used before is in memory first; what is used now takes its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_engine.engine_config import EngineConfig, HistoryConfig, MemoryConfig
from colibri_engine.experts.history import History, repin
from colibri_engine.experts.usage import UsageFile
from colibri_protocol.messages import RequestOptions, SubmitExtended
from tests.engine.experts.streaming_rig import conversation, load_streamed, run_steps
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from colibri_engine.engine import Engine

NUM_EXPERTS, NUM_LAYERS = 8, 3


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    source = write_container(
        tmp_path / "container", n_routed_experts=NUM_EXPERTS, num_hidden_layers=NUM_LAYERS
    ).path
    return restream(source, tmp_path / "stream")


def config(path: Path, history: HistoryConfig, cap: int = 4) -> EngineConfig:
    told = read_config((), {"SNAP": str(path), "COLI_CTX": "256", "COLI_TEMP": "0"})
    memory = MemoryConfig(cap=cap, may_raise=False, history=history)
    return replace(told, memory=memory, kv_save=False)


def answer(engine: Engine, number: int, prompt: list[int], length: int = 8) -> None:
    options = RequestOptions(max_tokens=length, ignore_eos=True)
    engine.submit(SubmitExtended(number, -1, options, ()), np.array(prompt, np.int32))
    while not engine.is_idle:
        engine.step()


def write_usage(path: Path, counts: dict[tuple[int, int], int]) -> None:
    lines = [f"{layer} {expert} {count}" for (layer, expert), count in sorted(counts.items())]
    (path / ".coli_usage").write_text("\n".join(lines) + "\n")


def read_usage(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return UsageFile(path / ".coli_usage", (NUM_LAYERS, NUM_EXPERTS), "glm4_moe").read()


def test_every_choice_of_a_turn_is_in_the_file(stream: Path) -> None:
    engine = startup.load(config(stream, HistoryConfig(decay=1.0))).engine
    answer(engine, 1, list(range(40, 60)))
    engine.close()
    first = read_usage(stream)
    counts = engine.telemetry._model.routing_counts
    assert counts is not None
    layers = NUM_LAYERS - len(counts)
    np.testing.assert_array_equal(first[layers:NUM_LAYERS], counts)
    assert first[:layers].sum() == first[NUM_LAYERS].sum() == 0
    again = startup.load(config(stream, HistoryConfig(decay=1.0))).engine
    answer(again, 1, list(range(40, 60)))
    again.close()
    np.testing.assert_array_equal(read_usage(stream), 2 * first)


def test_nothing_is_read_or_written_where_that_is_off(stream: Path) -> None:
    engine = startup.load(config(stream, HistoryConfig(is_saved=False))).engine
    answer(engine, 1, list(range(40, 60)))
    engine.close()
    assert not (stream / ".coli_usage").exists()


def test_a_history_of_another_model_is_told_and_left_alone(
    stream: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stream / ".coli_usage").write_text("-1 78 256\n3 1 5\n")
    engine = startup.load(config(stream, HistoryConfig())).engine
    assert "this model has" in caplog.text
    answer(engine, 1, [5, 6, 7])
    engine.close()
    assert (stream / ".coli_usage").read_text() == "-1 78 256\n3 1 5\n"


def test_what_was_used_most_is_in_memory_before_the_first_question(stream: Path) -> None:
    write_usage(stream, {(1, 3): 200_000, (1, 5): 90_000, (2, 1): 80_000, (2, 6): 100, (2, 0): 70})
    engine = startup.load(config(stream, HistoryConfig(), cap=4)).engine
    cells = np.frombuffer(engine.telemetry.expert_map().cells, np.uint8).reshape(-1, NUM_EXPERTS)
    held = [np.flatnonzero(row >> 6).tolist() for row in cells]
    assert held[-2:] == [[3, 5], [1, 6]]  # half of four slots
    report = engine.report()["experts"]
    assert isinstance(report, dict)
    assert report["pinned"] == 4
    engine.close()


def test_a_short_history_pins_nothing(stream: Path) -> None:
    write_usage(stream, {(1, 3): 4_000, (2, 1): 900})
    engine = startup.load(config(stream, HistoryConfig())).engine
    assert engine.telemetry.tiers().ram == 0
    engine.close()


def test_pins_may_be_off(stream: Path) -> None:
    write_usage(stream, {(1, 3): 400_000})
    engine = startup.load(config(stream, HistoryConfig(pins=False))).engine
    assert engine.telemetry.tiers().ram == 0
    engine.close()


def test_history_and_pins_change_no_token(stream: Path) -> None:
    model, _ = load_streamed(stream, NUM_EXPERTS)
    steps = conversation(model.config.vocab_size)
    wanted = run_steps(model, steps)
    write_usage(stream, {(layer, e): 50_000 - 100 * e for layer in (1, 2) for e in range(6)})
    engine = startup.load(config(stream, HistoryConfig(repin_tokens=2), cap=2)).engine
    for found, expected in zip(run_steps(engine._model, steps), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    engine.close()


def test_a_cold_pin_gives_way_to_a_hot_expert(stream: Path) -> None:
    _, store = load_streamed(stream, 4)
    layer = store.layers[0]
    layer.cache.pin([2, 3])
    heat = np.zeros((len(store.layers), NUM_EXPERTS), np.int64)
    heat[0, [2, 3, 5, 6]] = [0, 40, 40, 5]
    assert repin(store.layers, heat) == [((0, 2), (0, 5))]
    assert layer.cache.pinned == [3, 5]
    assert heat[0].tolist() == [0, 0, 0, 20, 0, 20, 2, 0]
    assert repin(store.layers, heat) == []  # nobody is ahead by enough


def test_one_pass_exchanges_no_more_than_sixteen(stream: Path) -> None:
    _, store = load_streamed(stream, 4)
    layers = store.layers * 12
    heat = np.zeros((len(store.layers), NUM_EXPERTS), np.int64)
    heat[:, 4:] = 100
    for layer in store.layers:
        layer.cache.pin([0, 1, 2, 3])
    assert len(repin(layers, heat)) <= 16


def test_the_history_is_believed_the_more_the_longer_it_is(tmp_path: Path) -> None:
    def history(selections: int) -> History:
        path = tmp_path / ".coli_usage"
        path.write_text(f"0 0 {selections}\n")
        return History(UsageFile(path, (1, 2), "m"), [0])

    assert history(4_999).confidence == 0
    assert history(4_999).rates(0, 2) is None
    assert history(50_000).confidence == pytest.approx(0.25)
    assert history(10**6).confidence == 1
    rates = history(10**6).rates(0, 2)
    assert rates is not None
    assert rates.tolist() == [2.0, 0.0]
