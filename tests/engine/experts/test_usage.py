"""The history of experts is read and written in its published form, and survives what happens."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.experts.usage import MAX_COUNT, UsageFile, engine_id

SHAPE = (3, 8)


def usage(path: Path, decay: float | None = 1.0) -> UsageFile:
    return UsageFile(path, SHAPE, "glm_moe_dsa", decay)


def counts(*cells: tuple[int, int, int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    found = np.zeros((SHAPE[0] + 1, SHAPE[1]), np.int64)
    for layer, expert, count in cells:
        found[layer, expert] = count
    return found


def test_an_architecture_has_its_published_number() -> None:
    assert engine_id("glm_moe_dsa") == 3815245270


def test_the_file_is_what_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    usage(path).add(counts((3, 0, 7), (0, 5, 2), (0, 1, 90)))
    assert path.read_text() == "-1 3 8\n-2 1 3815245270\n0 1 90\n0 5 2\n3 0 7\n"
    np.testing.assert_array_equal(usage(path).read(), counts((3, 0, 7), (0, 5, 2), (0, 1, 90)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 1 90\n3 0 7\n",  # before there were headers
        "-1 3 8\n0 1 90\n3 0 7\n",
        "-1 3 8\n-2 1 3815245270\n-9 4 4\n0 1 90\n3 0 7",  # what a later writer may add
    ],
)
def test_older_and_later_files_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".coli_usage"
    path.write_text(text)
    wanted = counts((0, 1, 90), (3, 0, 7)) if text else counts()
    np.testing.assert_array_equal(usage(path).read(), wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1 4 8\n", "of 4 layers and 8 experts; this model has 3 and 8"),
        ("-1 3 9\n", "of 3 layers and 9 experts"),
        ("-1 3 8\n-2 2 3815245270\n", "version 2, newer than 1"),
        ("-1 3 8\n-2 1 12\n", "another architecture"),
        ("0 1\n", "line 1 is '0 1', not three whole numbers"),
        ("0 1 2 3\n", "not three whole numbers"),
        ("0 1 1.5\n", "not three whole numbers"),
        ("4 0 1\n", "line 1 is '4 0 1', which the model has not"),
        ("0 8 1\n", "which the model has not"),
        ("0 -1 1\n", "which the model has not"),
        ("0 1 -1\n", "which the model has not"),
        ("\x00\x01\xff", "not three whole numbers"),
    ],
)
def test_what_is_not_this_models_history_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / ".coli_usage"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=message):
        usage(path).read()


def test_a_history_of_another_model_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / ".coli_usage"
    path.write_text("-1 4 8\n0 0 1\n")
    history = usage(path)
    with caplog.at_level(logging.WARNING):
        history.add(counts((0, 0, 1)))
        history.add(counts((0, 0, 1)))
    assert path.read_text() == "-1 4 8\n0 0 1\n"
    assert len(caplog.records) == 1
    assert "is not saved" in caplog.text


def test_nothing_chosen_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    usage(path).add(counts())
    assert not path.exists()


def test_counts_saturate_and_huge_ones_are_read_as_the_largest(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    path.write_text(f"0 0 {MAX_COUNT}\n0 1 {10**30}\n")
    history = usage(path)
    history.add(counts((0, 0, 5), (0, 1, 5)))
    np.testing.assert_array_equal(history.read(), counts((0, 0, MAX_COUNT), (0, 1, MAX_COUNT)))


def test_old_counts_decay_by_the_factor_that_is_set(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    path.write_text("0 0 100\n0 1 1\n0 2 3\n")
    usage(path, decay=0.5).add(counts((0, 0, 10), (0, 3, 1)))
    np.testing.assert_array_equal(
        usage(path).read(), counts((0, 0, 60), (0, 1, 1), (0, 2, 2), (0, 3, 1))
    )


def test_a_long_history_still_follows_what_is_asked_today(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    path.write_text("0 0 18000000\n")
    history = usage(path, decay=None)
    for _ in range(60):
        history.add(counts((0, 1, 200_000)))
    found = history.read()
    assert found[0, 1] > found[0, 0]


def test_a_directory_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = usage(tmp_path / "missing" / ".coli_usage")
    with caplog.at_level(logging.WARNING):
        history.add(counts((0, 0, 1)))
        history.add(counts((0, 0, 1)))
    assert len(caplog.records) == 1


def _add_often(path: Path, expert: int) -> None:
    history = usage(path)
    for _ in range(40):
        history.add(counts((1, expert, 1), (2, 0, 1)))


def test_engines_on_one_directory_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_add_often, args=(path, expert)) for expert in (1, 2, 3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    np.testing.assert_array_equal(
        usage(path).read(), counts((1, 1, 40), (1, 2, 40), (1, 3, 40), (2, 0, 120))
    )


def test_a_history_that_is_no_plain_file_is_neither_waited_for_nor_replaced(tmp_path: Path) -> None:
    path = tmp_path / ".coli_usage"
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is no plain file"):
        usage(path).read()
    usage(path).add(counts((0, 1, 1)))
    assert path.is_fifo()
