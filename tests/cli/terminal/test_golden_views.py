"""Every view as it was last looked at and found good, at three widths, in mono, dark and light.

The files are in `golden/`. After a change of a view:
`GOLDEN=write python -m pytest tests/cli/terminal/test_golden_views.py`, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.cells import cell_len

from colibri_cli.palette import PALETTE
from tests.cli.terminal.shown_views import VIEWS, drawn, plain, readable

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (40, 80, 120)
MODES = ("mono", "dark", "light")
# Code is not wrapped, so that what is copied is the code.
_UNBROKEN = '    return "up, down " * times'


@pytest.mark.parametrize("view", VIEWS)
def test_it_looks_as_it_did(view: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts: list[str] = []
    for width in WIDTHS:
        for mode in MODES:
            with monkeypatch.context() as patch:
                text = drawn(view, width, mode, patch, tmp_path)
            lines = [line.rstrip() for line in readable(text).split("\n")]
            shown = "\n".join(lines).rstrip() + "\n"
            is_same = mode == "light" and parts[-1].endswith(f" dark\n{shown}")
            parts.append(f"=== {width} {mode}\n" + ("as on dark\n" if is_same else shown))
    found, file = "".join(parts), GOLDEN / f"{view}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("view", VIEWS)
def test_no_line_is_wider_than_the_terminal(
    view: str, width: int, mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        text = drawn(view, width, mode, patch, tmp_path)
    lines = plain(text).split("\n")
    assert [
        line for line in lines if cell_len(line) > width and not line.startswith(_UNBROKEN)
    ] == []


@pytest.mark.parametrize("view", VIEWS)
def test_without_colour_there_is_none(
    view: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        text = readable(drawn(view, 80, "mono", patch, tmp_path))
    numbers = {n for code in text.split("{")[1:] for n in code.partition("}")[0].split(";")}
    attributes = {"", "0", "1", "2", "3", "4"}  # bold, faint, italic, underlined
    assert {n for n in numbers if n.isdecimal() or not n} <= attributes


def test_no_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(VIEWS)


def _luminance(number: int) -> float:
    """Return how bright one of the 256 colours is, from 0 to 1."""
    if number >= 232:
        channels = (8 + 10 * (number - 232),) * 3
    else:
        steps = (0, 95, 135, 175, 215, 255)
        rest = number - 16
        channels = (steps[rest // 36], steps[rest // 6 % 6], steps[rest % 6])
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", PALETTE)
def test_every_colour_can_be_read_on_its_background(name: str) -> None:
    dark, light = (_luminance(number) for number in PALETTE[name])
    assert (dark + 0.05) / 0.05 > 3.9
    assert 1.05 / (light + 0.05) > 3.9
