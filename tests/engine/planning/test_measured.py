"""Rates are measured once for a machine and a device, and a damaged file only costs time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.experts.disk_speed import Access
from colibri_engine.planning.measured import MeasuredRates
from colibri_engine.planning.rates import ExpertShape

RECORD = 64 << 10


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "rates.json"
    first = MeasuredRates(path, "default")
    found = first.call_s()
    assert found > 0
    assert first.num_measured == 1
    first.save()
    again = MeasuredRates(path, "default")
    assert again.call_s() == found
    assert again.num_measured == 0
    renewed = MeasuredRates(path, "default", renew=True)
    renewed.call_s()
    assert renewed.num_measured == 1


def test_rates_belong_to_threads_and_numerics(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    first = MeasuredRates(path, "default")
    first.call_s()
    first.save()
    fast = MeasuredRates(path, "fast")
    fast.call_s()
    assert fast.num_measured == 1
    threads = kernels.num_threads()
    kernels.set_num_threads(threads + 1)
    try:
        more = MeasuredRates(path, "default")
        more.call_s()
        assert more.num_measured == 1
    finally:
        kernels.set_num_threads(threads)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"version": 9, "rates": {}}', '{"rates": [1]}']
)
def test_a_damaged_file_is_measured_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    rates = MeasuredRates(path, "default")
    assert rates.call_s() > 0
    assert rates.num_measured == 1
    rates.save()
    assert MeasuredRates(path, "default").call_s() > 0


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], ["x"], [True], [-1.0], "1", [float("nan")]], ids=str
)
def test_an_entry_that_is_no_rate_is_not_used(tmp_path: Path, values: object) -> None:
    path = tmp_path / "rates.json"
    first = MeasuredRates(path, "default")
    first.call_s()
    first.save()
    body = json.loads(path.read_text())
    body["rates"] = dict.fromkeys(body["rates"], values)
    path.write_text(json.dumps(body))
    again = MeasuredRates(path, "default")
    assert again.call_s() > 0
    assert again.num_measured == 1


def test_experts_and_kinds_are_measured_with_their_own_shape() -> None:
    rates = MeasuredRates(None, "default")
    found = rates.experts(ExpertShape("int4", 64, 32, 2, 8), num_rows=16)
    assert min(found) > 0
    assert min(rates.kind("int8")) > 0
    rates.save()  # nowhere


def test_a_disk_gives_what_its_file_gives(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(np.random.default_rng(0).bytes(64 * RECORD))
    rates = MeasuredRates(None, "default")
    found = rates.disk(file, RECORD, 4, Access("threads", is_direct=False))
    assert found is not None
    assert found.bytes_per_s > 0
    assert found.seconds(0) == 0.0
    assert found.seconds(2 * RECORD) >= 2 * RECORD / found.bytes_per_s


def test_a_file_of_holes_tells_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "weights.safetensors"
    with file.open("wb") as opened:
        opened.truncate(64 * RECORD)
    rates = MeasuredRates(None, "default")
    assert rates.disk(file, RECORD, 4, Access("threads", is_direct=False)) is None
    assert "has holes" in caplog.text
