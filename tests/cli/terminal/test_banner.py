"""The banner: its drawing, what is said of a model, and where it is not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colibri_cli.greeting import disk_size, model_line
from colibri_cli.palette import PALETTE
from colibri_cli.terminal.banner import BIRD, FAINT, PIXELS, render
from tests.cli.terminal.shown_views import plain
from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal

TEXTS = ["coli 1", "tagline", "model", "note"]


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_the_drawing_has_16_by_10_pixels_of_the_palette() -> None:
    assert [len(row) for row in BIRD] == [16] * 10
    assert set("".join(BIRD)) == {".", *PIXELS}
    for name, *numbers in PIXELS.values():
        assert PALETTE[name] == tuple(numbers)
    assert PALETTE["faint"] == FAINT


def test_it_stands_beside_four_lines_above_a_rule() -> None:
    lines = plain(render(TEXTS, width=80, has_color=True)).splitlines()
    assert [line[18:] for line in lines[:-1]] == ["", *TEXTS]
    assert lines[-1] == "─" * 58


@pytest.mark.parametrize(
    "options", [{"width": 59}, {"width": 80, "has_blocks": False}], ids=["narrow", "ascii"]
)
def test_without_room_or_blocks_there_are_only_the_lines(options: dict[str, int]) -> None:
    assert render(TEXTS, has_color=False, **options).splitlines() == TEXTS  # type: ignore[arg-type]


def test_an_empty_line_is_left_out_and_a_long_one_cut() -> None:
    text = render(["a", "", "鳥" * 60], width=61, has_color=False)
    lines = [line[18:] for line in text.splitlines()[1:3]]
    assert lines == ["a", "鳥" * 21 + "…"]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (72_500, "0.1 MB"),
        (136_100_000, "136 MB"),
        (1_500_000_000, "1.5 GB"),
        (38 * 10**10, "380 GB"),
    ],
)
def test_sizes_have_a_decimal_where_they_are_small(num_bytes: int, text: str) -> None:
    assert disk_size(num_bytes) == text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "glm_moe_dsa", "num_hidden_layers": 78, "n_routed_experts": 256},
         "GLM · 78x256 MoE · 2.0 GB"),
        ({"model_type": "new_kind", "num_hidden_layers": 4, "num_experts": 8},
         "new_kind · 4x8 MoE · 2.0 GB"),
        ({"model_type": "kimi_k3", "text_config": {"num_hidden_layers": 9, "num_experts": 7}},
         "Kimi · 9x7 MoE · 2.0 GB"),
        ({"model_type": "llama", "num_hidden_layers": 30}, "llama · 30 layers · 2.0 GB"),
        ([], "tiny · 2.0 GB"),
        ("no json", "tiny · 2.0 GB"),
        (None, "tiny · 2.0 GB"),
    ],
)  # fmt: skip
def test_a_model_is_told_by_its_configuration_and_the_size_of_its_files(
    tmp_path: Path, config: object, said: str
) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2 * 10**9)  # sparse, and no model at all: nothing of it is read
    (tmp_path / "notes.txt").write_text("not weights" * 100)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (tmp_path / "config.json").write_text(text)
    assert model_line(tmp_path, "tiny") == said


def test_one_file_is_told_by_name_and_size(tmp_path: Path) -> None:
    file = tmp_path / "demo.gguf"
    file.write_bytes(b"x" * 2_000_000)
    assert model_line(file, "demo") == "demo · 2 MB"


def shown(coli: CommandLine, *arguments: str, **variables: str) -> str:
    environment = coli.environment | variables
    with Terminal([*coli.argv, *arguments], environment, coli.home, (60, 80)) as terminal:
        assert terminal.wait(60) < 128
        return terminal.text


@pytest.mark.e2e
def test_coli_alone_greets_on_a_terminal_and_the_help_does_not(coli: CommandLine) -> None:
    text = shown(coli)
    assert text.index("▀") < text.index("Usage:")
    assert "larger than memory\n" in text.partition("Usage:")[0]
    assert "▀" not in shown(coli, "--help")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("--quiet",), {}),
        ((), {"COLI_BANNER": "0"}),
        ((), {"TERM": "dumb"}),
        ((), {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ((), {"COLUMNS": "59"}),
    ],
)
def test_it_is_left_out_where_it_is_not_wanted_or_cannot_be_drawn(
    coli: CommandLine, arguments: tuple[str, ...], variables: dict[str, str]
) -> None:
    text = shown(coli, *arguments, **variables)
    assert "▀" not in text
    assert "Usage:" in text


@pytest.mark.e2e
def test_a_file_switches_it_off_and_a_broken_one_keeps_nobody_from_help(coli: CommandLine) -> None:
    (coli.home / "colibri.toml").write_text("[default]\nbanner = false\n")
    assert "▀" not in shown(coli)
    (coli.home / "colibri.toml").write_text("[default]\nbannr = false\n")
    assert "Usage:" in shown(coli)


@pytest.mark.e2e
def test_without_colour_the_drawing_stays(coli: CommandLine) -> None:
    with Terminal(coli.argv, coli.environment | {"NO_COLOR": "1"}, coli.home, (60, 80)) as terminal:
        terminal.wait(60)
        assert "▀" in terminal.text
        assert b"\x1b[" not in terminal.raw


@pytest.mark.e2e
def test_chat_and_serve_greet_and_name_the_model(coli: CommandLine) -> None:
    model = coli.home / "tiny"
    model.mkdir()
    for command in ("chat", "serve"):
        text = shown(coli, command, "--model", str(model), "--engine-bin", str(coli.home / "none"))
        assert "▀" in text
        assert f"{command} · " in text
        assert "tiny" in text
    assert "▀" not in coli.run("serve", "--model", str(model)).stderr
