"""Task files: what is taken, in which order, and what is refused by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colibri_cli.errors import UsageError
from colibri_cli.quality.tasks import load_task
from tests.fakes.command_line import CommandLine

ROW = {"ctx": "a", "choices": [" b", " c"], "gold": 1}


def write(data: Path, *rows: object) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (data / "mine.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_task_is_its_file_and_absent_without_it(tmp_path: Path) -> None:
    assert load_task("mine", tmp_path, 40) is None
    write(tmp_path, ROW, "", {**ROW, "ctx": "x"})
    items = load_task("mine", tmp_path, 40)
    assert items is not None
    assert [item.context for item in items] == ["a", "x"]
    assert len({item.id for item in items}) == 2


def test_a_limit_takes_the_same_questions_each_time(tmp_path: Path) -> None:
    write(tmp_path, *({**ROW, "ctx": str(n)} for n in range(100)))
    first, again = (load_task("mine", tmp_path, 10) for _ in range(2))
    assert first == again
    assert first is not None
    assert len(first) == 10


def test_the_small_task_needs_no_data(tmp_path: Path) -> None:
    items = load_task("smoke", tmp_path, 40)
    assert items is not None
    assert len(items) == 10


@pytest.mark.parametrize(
    "row",
    [
        "{",
        "[]",
        {"ctx": "a"},
        {**ROW, "ctx": ""},
        {**ROW, "choices": [" b"]},
        {**ROW, "choices": [" b", ""]},
        {**ROW, "gold": 2},
        {**ROW, "gold": -1},
        {**ROW, "gold": "1"},
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_line(tmp_path: Path, row: object) -> None:
    write(tmp_path, ROW, row)
    with pytest.raises(UsageError, match=r"mine\.jsonl:2"):
        load_task("mine", tmp_path, 40)


@pytest.mark.parametrize(
    "row",
    [
        "[" * 100_000,
        json.dumps({**ROW, "gold": True}),
        json.dumps({**ROW, "ctx": "\ud800"}),
        json.dumps({**ROW, "choices": ["\udfff", "b"]}),
    ],
)
def test_rows_nobody_can_ask_are_named(tmp_path: Path, row: str) -> None:
    write(tmp_path, ROW, row)
    with pytest.raises(UsageError, match=r"mine\.jsonl:2"):
        load_task("mine", tmp_path, 40)


def test_marks_and_line_ends_of_other_editors_are_no_part_of_a_row(tmp_path: Path) -> None:
    row = json.dumps({**ROW, "ctx": "a\u2028b\x85c"}, ensure_ascii=False)
    (tmp_path / "mine.jsonl").write_bytes(f"\ufeff{row}\r\n\r\n".encode())
    items = load_task("mine", tmp_path, 40)
    assert items is not None
    assert [item.context for item in items] == ["a\u2028b\x85c"]


def test_a_directory_or_a_pipe_is_no_task(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").mkdir()
    with pytest.raises(UsageError, match="is not a file"):
        load_task("mine", tmp_path, 40)


def test_reports_of_brackets_alone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("[" * 100_000)
    done = CommandLine(tmp_path).run("bench", "--compare", str(path), str(path))
    assert (done.returncode, "unexpected" in done.stderr) == (2, False)
    done = CommandLine(tmp_path).run("bench", "quality", "--compare", str(path), str(path))
    assert (done.returncode, "unexpected" in done.stderr) == (2, False)
