"""The format, command and endpoint of docs/adding-parts.md work where the page puts them."""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.fakes.command_line import ROOT, START, CommandLine

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "adding-parts.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
FORMAT = BLOCKS["engine/colibri_engine/quant/tq2_0.py"]


class Copied(CommandLine):
    """The command line of a copy, in spite of an editable installation's own finder."""

    @property
    def argv(self) -> list[str]:
        plain = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]; "
        return [sys.executable, "-c", plain + START]


@pytest.fixture
def extended(served: CommandLine, tmp_path: Path) -> CommandLine:
    """A copy of the command line with the page's files in it."""
    copy = tmp_path / "tree"
    shutil.copytree(
        ROOT / "colibri_cli", copy / "colibri_cli", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in BLOCKS.items():
        if name.startswith("colibri_cli/"):
            (copy / name).write_text(text, encoding="utf-8")
    path = f"{copy}:{ROOT / 'engine'}:{ROOT / 'plugins'}"
    return Copied(served.home, {**served.variables, "PYTHONPATH": path})


def test_every_block_is_tested_here() -> None:
    assert set(BLOCKS) == {
        "engine/colibri_engine/quant/tq2_0.py",
        "colibri_cli/commands/places.py",
        "colibri_cli/gateway/routes/greeting.py",
    }


def test_the_pages_format_gives_the_bits_of_the_reference() -> None:
    quants = pytest.importorskip("gguf.quants")
    kind = pytest.importorskip("gguf").GGMLQuantizationType.TQ2_0
    scope: dict[str, Any] = {}
    exec(FORMAT, scope)
    values = np.random.default_rng(5).standard_normal((7, 512)).astype(np.float32)
    raw = quants.quantize(values, kind)
    number_format = scope["FORMAT"]
    assert raw.shape == (7, number_format.row_bytes(512))
    np.testing.assert_array_equal(number_format.unpack(raw), quants.dequantize(raw, kind))


def test_the_pages_command_is_there(extended: CommandLine) -> None:
    shown = extended.run("places", "--help").stdout
    assert "Print where models, settings and histories are." in shown
    done = extended.run("places", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"].startswith(str(extended.home))
    assert extended.run("places").stdout.startswith("models ")


def test_the_pages_endpoint_answers(extended: CommandLine) -> None:
    server = extended.start("serve", "--plain", "--port", "0")
    assert server.stderr is not None
    try:
        url, line = "", ""
        while "ready:" not in line:
            line = server.stderr.readline().decode()
            assert line, "the server ended"
            if "listening on" in line:
                url = line.partition("listening on ")[2].partition(";")[0].strip()
        with urllib.request.urlopen(f"{url}/greeting/Ada") as answer:
            assert json.load(answer) == {"greeting": "tiny greets Ada"}
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{url}/greeting/4")
        with urllib.request.urlopen(f"{url}/openapi.json") as answer:
            assert "/greeting/{name}" in json.load(answer)["paths"]
    finally:
        server.terminate()
        server.communicate(timeout=60)
