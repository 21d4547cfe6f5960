"""Reports: what is written, what is read back, and what the text makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colibri_cli.diag.phases.base import PhaseResult
from colibri_cli.diag.phases.smoke import is_repeating
from colibri_cli.diag.report import Report, read_report, write_reports
from colibri_cli.diag.text import markdown, number, table_rows
from colibri_cli.errors import DiagError, UsageError

SYSTEM = PhaseResult(
    {
        "machine": None,
        "engine": {"isa": "scalar", "num_threads": 1, "numerics": "fast", "capabilities": []},
        "model": {"id": "m", "family": "f", "num_layers": 2, "num_experts": None},
    },
    {"system.load_s": 0.5},
)


def made() -> Report:
    report = Report({"system": SYSTEM}, {"system": 0.1, "quality": 0.2, "smoke": 1.0})
    report.errors["quality"] = "the engine ended by SIGKILL"
    case = {"prompt": "a|b", "answer": "<x>\n*y*", "passed": False, "is_repeating": True}
    report.phases["smoke"] = PhaseResult({"cases": [case]}, {"smoke.passed": 0.0})
    return report


def test_a_phase_that_broke_off_makes_the_report_a_failed_one() -> None:
    document = made().document()
    assert document["status"] == "failed"
    assert document["problems"] == ["quality could not be finished: the engine ended by SIGKILL"]
    assert document["phases"]["quality"]["state"] == "failed"


def test_a_phase_that_does_not_apply_says_why() -> None:
    report = Report({"quality": PhaseResult(skipped="no grammars")}, {"quality": 0.0})
    phase = report.document()["phases"]["quality"]
    assert (phase["state"], phase["reason"]) == ("skipped", "no grammars")
    assert report.document()["status"] == "ok"


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    document = made().document()
    write_reports(tmp_path / "new" / "folder", document, markdown(document))
    assert read_report(tmp_path / "new" / "folder" / "report.json") == document
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "report.json",
        "report.md",
    ]


def test_answers_cannot_break_the_page() -> None:
    text = markdown(made().document())
    assert r"| a\|b | \<x\> \*y\* (repeats itself) | no |" in text


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[]", "not a report"),
        ('{"kind": "coli diag", "schema_version": 99}', "version 99"),
        ('{"kind": "coli diag", "schema_version": 1}', "incomplete"),
    ],
)
def test_a_file_that_is_no_report_is_refused(
    tmp_path: Path, content: str | None, named: str
) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=named):
        read_report(path)


def test_a_report_with_a_figure_that_is_no_number_is_refused(tmp_path: Path) -> None:
    document = made().document()
    document["metrics"]["smoke.passed"]["value"] = "many"
    (tmp_path / "r.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="incomplete"):
        read_report(tmp_path / "r.json")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiagError, match="file"):
        write_reports(tmp_path / "file", made().document(), "")


def test_the_table_has_what_the_document_has() -> None:
    assert table_rows(made().document()) == [
        ("system.load_s", "0.5000", "s"),
        ("smoke.passed", "0", "prompts"),
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (3.0, "3"), (0.12345, "0.1235"), (123.456, "123.46")]
)
def test_figures_have_as_many_decimals_as_they_deserve(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no no no", True),
        ("No, no, no", False),
        ("yes, yes, yes!", True),
        ("a bb bbb", False),
        ("the the", False),
    ],
)
def test_a_word_three_times_in_a_row_is_a_circle(text: str, expected: bool) -> None:
    assert is_repeating(text) is expected
