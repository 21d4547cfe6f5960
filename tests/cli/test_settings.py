"""Where effective settings come from: files, tables, variables, flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from colibri_cli.backends.base import ModelCard
from colibri_cli.commands.chat import ChatOptions
from colibri_cli.errors import UsageError
from colibri_cli.options import OutputOptions
from colibri_cli.sampling import generation_of, thinking_of
from colibri_cli.settings import color_choice, misspelt_variables, prepare, unread_variables
from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project" / "below"
    directory.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(directory)
    return directory


def temperature(command: str = "run", **options: str) -> float | None:
    return prepare(OutputOptions(**options), command).number("temperature")  # type: ignore[arg-type]


def test_files_are_looked_for_from_here_up_then_in_the_users_directory(
    here: Path, tmp_path: Path
) -> None:
    assert temperature() is None
    user = tmp_path / "xdg-config" / "colibri"
    user.mkdir(parents=True)
    (user / "config.toml").write_text("[default]\ntemperature = 0.1\n")
    assert temperature() == 0.1
    (here.parent / "colibri.toml").write_text("[default]\ntemperature = 0.2\n")
    assert temperature() == 0.2
    given = tmp_path / "given.toml"
    given.write_text("[default]\ntemperature = 0.3\n[run]\ntemperature = 0.4\n")
    assert temperature(config=str(given)) == 0.4
    assert temperature("chat", config=str(given)) == 0.3


def test_the_search_stops_at_the_repositorys_root(here: Path) -> None:
    (here.parent / "colibri.toml").write_text("[default]\ntemperature = 0.2\n")
    (here / ".git").mkdir()
    assert temperature() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature = 1", r"temperature.*\[default\]"),
        ("[default]\ntemperature = 'hot'", "temperature"),
        ("[default]\ntemperatur = 1", "temperatur"),
        ("[default\n", "not valid TOML"),
        ("\udcff", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    here: Path, text: str, said: str
) -> None:
    (here / "colibri.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=said) as caught:
        temperature()
    assert "colibri.toml" in caught.value.message


def test_a_misspelt_table_names_the_nearest(here: Path) -> None:
    (here / "colibri.toml").write_text("[chatt]\ntemperature = 1\n")
    with pytest.raises(SettingsError, match="chatt") as caught:
        prepare(OutputOptions(), "chat")
    assert "[chat]" in (caught.value.hint or "")


def test_a_missing_file_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"nope\.toml"):
        temperature(config="nope.toml")


def test_only_what_was_set_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    options = generation_of(prepare(ChatOptions(), "run"), max_tokens=7).options
    assert options.to_json() == b'{"max_tokens":7}'
    monkeypatch.setenv("COLI_TEMP", "0")
    monkeypatch.setenv("COLI_MAX_TOKENS", "3")
    options = generation_of(prepare(ChatOptions(), "run"), max_tokens=7).options
    assert (options.temperature, options.max_tokens) == (0.0, 3)


def test_thinking_is_left_to_the_model_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    thinker, plain = ModelCard("a", "x", can_think=True), ModelCard("b", "y")
    assert thinking_of(prepare(ChatOptions(), "run"), thinker) is None
    monkeypatch.setenv("COLI_THINK", "0")
    assert thinking_of(prepare(ChatOptions(), "run"), plain) is False
    monkeypatch.setenv("COLI_THINK", "1")
    assert thinking_of(prepare(ChatOptions(), "run"), thinker) is True
    assert thinking_of(prepare(ChatOptions(), "run"), plain) is None


def test_asking_for_reasoning_a_model_does_not_have_is_wrong_use() -> None:
    settings = prepare(ChatOptions(think=True), "run")
    with pytest.raises(UsageError, match="--think"):
        thinking_of(settings, ModelCard("b", "y"))


def test_colour_is_automatic_forced_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = prepare(ChatOptions(), "run")
    assert color_choice(settings, is_off=False) is None
    assert color_choice(settings, is_off=True) is False
    monkeypatch.setenv("COLI_COLOR", "1")
    forced = prepare(ChatOptions(), "run")
    assert color_choice(forced, is_off=False) is True
    monkeypatch.setenv("NO_COLOR", "1")
    assert color_choice(forced, is_off=False) is False


def test_misspelt_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLI_TEMPP", "1")
    assert misspelt_variables()["COLI_TEMPP"] == "COLI_TEMP"


def test_variables_of_other_engines_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLOCK", "1")
    assert "--ram" in unread_variables()["MLOCK"]
