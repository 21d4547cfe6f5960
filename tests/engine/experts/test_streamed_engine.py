"""A whole engine whose experts do not fit gives the replies of one where they do."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine import machine, startup
from colibri_engine.config import read_config
from colibri_engine.engine_config import EngineConfig, MemoryConfig
from colibri_engine.errors import InsufficientMemory
from colibri_engine.machine import Memory
from colibri_protocol.messages import (
    ExpertHits,
    ExpertMap,
    Finished,
    RequestFailed,
    RequestOptions,
    SubmitExtended,
    TierCounts,
    TokenLogprobs,
    TurnProfile,
)
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from colibri_engine.engine import Engine
    from colibri_protocol.messages import EngineMessage

NUM_EXPERTS = 8
GB = 1_000_000_000


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    source = write_container(directory / "container", n_routed_experts=NUM_EXPERTS).path
    return restream(source, directory / "stream")


def config(path: Path, memory: MemoryConfig, **changes: object) -> EngineConfig:
    told = read_config((), {"SNAP": str(path), "COLI_CTX": "256", "COLI_TEMP": "0"})
    return replace(told, memory=memory, kv_save=False, **changes)  # type: ignore[arg-type]


def submit(engine: Engine, number: int, prompt: list[int], length: int) -> None:
    options = RequestOptions(max_tokens=length, ignore_eos=True, logprobs=2)
    engine.submit(SubmitExtended(number, -1, options, ()), np.array(prompt, np.int32))


def replies(engine: Engine) -> list[TokenLogprobs]:
    """Return what three replies say that begin at different times."""
    found: list[EngineMessage] = []
    submit(engine, 1, list(range(40, 75)), 12)
    for _ in range(4):
        found += engine.step()
    submit(engine, 2, list(range(60, 80)), 9)
    found += engine.step()
    submit(engine, 3, [9, 8, 7], 5)
    while not engine.is_idle:
        found += engine.step()
    kept = [m for m in found if isinstance(m, TokenLogprobs)]
    assert len(kept) == 12 + 9 + 5
    return sorted(kept, key=lambda message: message.id)


@pytest.mark.parametrize("cap", [1, 2, 7])
def test_replies_and_probabilities_are_the_same(stream: Path, cap: int) -> None:
    resident = startup.load(config(stream, MemoryConfig(), num_slots=3, prefill_chunk=16)).engine
    memory = MemoryConfig(cap=cap, may_raise=False)
    streamed = startup.load(config(stream, memory, num_slots=3, prefill_chunk=16)).engine
    assert replies(streamed) == replies(resident)


def test_a_budget_that_holds_everything_streams_nothing(stream: Path) -> None:
    loaded = startup.load(config(stream, MemoryConfig(ram_bytes=2_000_000_000)))
    assert loaded.engine.telemetry.tiers().disk == 0
    wanted = MemoryConfig(cap=1, may_raise=True)  # of an older gateway: the least it wants
    assert startup.load(config(stream, wanted)).engine.telemetry.tiers().disk == 0


def finished(engine: Engine, number: int, prompt: list[int]) -> list[EngineMessage]:
    submit(engine, number, prompt, 6)
    found: list[EngineMessage] = []
    while not engine.is_idle:
        found += engine.step()
    return found


def counts_of(engine: Engine) -> npt.NDArray[np.int64]:
    counts = engine.telemetry._model.routing_counts
    assert counts is not None
    return counts


def only(messages: list[EngineMessage], kind: type[Any]) -> Any:  # noqa: ANN401 - of that type
    (found,) = (message for message in messages if isinstance(message, kind))
    return found


def test_what_is_told_of_the_tiers_is_what_is_there(stream: Path) -> None:
    memory = MemoryConfig(cap=3, may_raise=False)
    engine = startup.load(config(stream, memory)).engine
    start = engine.telemetry.greeting()
    counts = counts_of(engine)
    total = counts.size
    assert only(start, TierCounts) == TierCounts(0, 0, total, 0.0, 0.0)
    assert set(only(start, ExpertMap).cells) == {0}
    told = finished(engine, 1, list(range(40, 60)))
    tiers = only(told, TierCounts)
    rows = len(counts)
    assert (tiers.vram, tiers.ram, tiers.disk) == (0, 3 * rows, total - 3 * rows)
    assert tiers.ram_gb == pytest.approx(3 * rows * 8192 / 1e9, rel=0.5)
    cells = np.frombuffer(only(told, ExpertMap).cells, np.uint8)
    assert int((cells >> 6 == 1).sum()) == tiers.ram
    assert int((cells >> 6).max()) == 1
    assert (cells & 63).any()
    bits = np.unpackbits(np.frombuffer(only(told, ExpertHits).bits, np.uint8))
    assert int(bits.sum()) == np.count_nonzero(counts_of(engine))


def test_hits_and_times_are_those_of_the_reply(stream: Path) -> None:
    memory = MemoryConfig(cap=NUM_EXPERTS - 1, may_raise=False)
    engine = startup.load(config(stream, memory)).engine
    first = finished(engine, 1, list(range(40, 60)))
    cold = only(first, Finished).hit_percent
    last = [finished(engine, number, list(range(40, 60))) for number in range(2, 6)][-1]
    # What guesses bring in time counts as there, so that a fast disk makes even the first all hits.
    assert 0 <= cold <= only(last, Finished).hit_percent <= 100
    profile = only(first, TurnProfile)
    assert profile.expert_disk_s > 0
    assert 0 <= profile.expert_wait_s < profile.wall_s
    assert 0 < profile.expert_matmul_s < profile.wall_s
    report = engine.report()["experts"]
    assert isinstance(report, dict)
    assert report["hits"] + report["misses"] > 0
    assert report["bytes_read"] > 0


def test_a_model_in_memory_tells_of_no_reads(stream: Path) -> None:
    engine = startup.load(config(stream, MemoryConfig())).engine
    told = finished(engine, 1, list(range(40, 60)))
    assert only(told, Finished).hit_percent == 100
    profile = only(told, TurnProfile)
    assert (profile.expert_disk_s, profile.expert_wait_s) == (0, 0)
    assert 0 < profile.expert_matmul_s < profile.wall_s
    assert engine.report()["experts"] is None


def test_a_budget_below_one_expert_of_each_layer_is_refused(stream: Path) -> None:
    with pytest.raises(InsufficientMemory, match=r"the least that runs is 0\.26 GB") as caught:
        startup.load(config(stream, MemoryConfig(ram_bytes=256_100_000)))
    assert "--ram" in str(caught.value.hint)


def test_the_group_that_limits_memory_is_named_at_the_start(
    stream: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limited = Memory(256 * GB, 7 * GB, ("/sys/fs/cgroup/box", 8 * GB))
    monkeypatch.setattr(machine, "memory", lambda: limited)
    with caplog.at_level(logging.WARNING):
        engine = startup.load(config(stream, MemoryConfig(cap=2, may_raise=False))).engine
    assert "6.16 GB of memory" in caplog.text
    assert "limited by /sys/fs/cgroup/box to 8.00 GB" in caplog.text
    engine.close()


def test_a_read_that_fails_ends_its_request_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_container(tmp_path / "container", n_routed_experts=NUM_EXPERTS).path
    path = restream(source, tmp_path / "stream")
    wanted = replies(startup.load(config(path, MemoryConfig(), num_slots=3)).engine)
    memory = MemoryConfig(cap=1, may_raise=False)
    engine = startup.load(config(path, memory, num_slots=3)).engine
    file = path / "out-00000.safetensors"
    data = file.read_bytes()
    with file.open("r+b") as opened:
        opened.truncate(5000)
    submit(engine, 1, list(range(40, 75)), 12)
    found: list[EngineMessage] = []
    while not engine.is_idle:
        found += engine.step()
    (failure,) = (m for m in found if isinstance(m, RequestFailed))
    assert failure.code == "READ_FAILED"
    assert failure.detail.startswith("out-00000.safetensors: ")
    assert failure.detail.endswith("; the file was cut: copy or convert the model again")
    assert "Traceback" not in caplog.text
    assert "copy or convert the model again" in caplog.text
    assert not any(isinstance(m, Finished) for m in found)
    with file.open("r+b") as opened:
        opened.write(data)
    assert replies(engine) == wanted
