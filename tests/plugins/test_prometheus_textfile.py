"""Figures in a file: whole, in the format, and only where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from colibri_cli.plugin_api import ColibriError
from colibri_cli.testing import checks_of, hooks_of, sinks_of
from colibri_plugins import prometheus_textfile as plugin

FIGURES = {
    "status": "ok",
    "uptime_s": 7,
    "scheduler": {"active": 1, "queued": 2, "completed": 3, "failed": 0},
    "tiers": {"vram": 0, "ram": 5, "disk": 6},
    "last_turn": {"wall_s": 0.5, "completion_tokens": 9},
}


@pytest.fixture(autouse=True)
def _settings_as_before() -> Iterator[None]:
    before = dict(plugin._values)
    yield
    plugin._values.clear()
    plugin._values.update(before)


def test_without_a_file_there_is_no_receiver() -> None:
    assert sinks_of(plugin) == {}
    assert checks_of(plugin)["plugins.prometheus_textfile"].status == "skip"


def test_the_file_holds_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "coli.prom"
    hooks_of(plugin).configure(values={"file": str(path), "interval_s": 1.0})
    sinks_of(plugin)["textfile"](FIGURES)
    lines = path.read_text().splitlines()
    assert "colibri_up 1" in lines
    assert "colibri_queue_depth 2" in lines
    assert 'colibri_requests_total{outcome="completed"} 3' in lines
    assert 'colibri_experts{tier="disk"} 6' in lines
    assert "colibri_last_turn_seconds 0.5" in lines
    assert [p.name for p in tmp_path.iterdir()] == ["coli.prom"]
    assert checks_of(plugin)["plugins.prometheus_textfile"].status == "pass"


def test_a_server_that_is_loading_is_not_up(tmp_path: Path) -> None:
    assert "colibri_up 0" in list(plugin.lines({"status": "loading"}))


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "coli.prom"
    hooks_of(plugin).configure(values={"file": str(path)})
    assert checks_of(plugin)["plugins.prometheus_textfile"].status == "fail"
    with pytest.raises(ColibriError, match="missing"):
        plugin.write(path, FIGURES)
