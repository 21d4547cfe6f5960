"""docs/clients.md speaks of the versions that are installed for these tests."""

from __future__ import annotations

import re

from tests.fakes.command_line import ROOT


def test_the_page_names_the_versions_that_were_run() -> None:
    script = (ROOT / "scripts" / "clients").read_text()
    pins = re.findall(r"echo (?:pypi|npm) \S+?(?:==|(?<=\w)@)([\d.]+) ;;", script)
    page = (ROOT / "docs" / "clients.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(pins) == 13
    assert sorted(rows) == sorted(pins)
