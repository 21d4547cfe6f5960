"""Where effective settings come from: files, tables, variables, flags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from colibri_cli.backends.base import ModelCard
from colibri_cli.commands.chat import ChatOptions
from colibri_cli.errors import UsageError
from colibri_cli.options import OutputOptions
from colibri_cli.sampling import generation_of, thinking_of
from colibri_cli.settings import (
    color_choice,
    effective_settings,
    misspelt_variables,
    plugin_choice,
    prepare,
    unread_variables,
)
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


def user_file(tmp_path: Path, text: str) -> Path:
    user = tmp_path / "xdg-config" / "colibri"
    user.mkdir(parents=True)
    (user / "config.toml").write_text(text)
    return user / "config.toml"


def test_a_project_file_lies_over_the_users_key_by_key(here: Path, tmp_path: Path) -> None:
    user = user_file(tmp_path, "[default]\ntemperature = 0.1\nctx = 100\n[chat]\nctx = 200\n")
    project = here.parent / "colibri.toml"
    project.write_text("[default]\ntemperature = 0.2\n")
    for command, ctx in (("run", 100), ("chat", 200)):
        settings = prepare(OutputOptions(), command)
        assert (settings.number("temperature"), settings.integer("ctx")) == (0.2, ctx)
        assert settings["temperature"].origin.name == str(project)
        assert settings["ctx"].origin.name == str(user)
    project.write_text("[default]\nctx = 300\n")
    assert prepare(OutputOptions(), "chat").integer("ctx") == 300  # over the user's [chat] too


def test_a_named_file_lies_over_the_others(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file(tmp_path, "[default]\ntemperature = 0.1\n")
    (here / "colibri.toml").write_text("[default]\ntemperature = 0.2\n")
    given = tmp_path / "given.toml"
    given.write_text("[default]\nctx = 7\n")
    assert temperature(config=str(given)) == 0.2
    given.write_text("[default]\ntemperature = 0.3\n")
    assert temperature(config=str(given)) == 0.3
    assert temperature() == 0.2
    monkeypatch.setenv("COLI_CONFIG", str(given))
    assert temperature() == 0.3


def test_a_wrong_value_is_told_of_the_file_that_has_it(here: Path, tmp_path: Path) -> None:
    user = user_file(tmp_path, "[default]\nctxx = 1\n")
    (here / "colibri.toml").write_text("[default]\ntemperature = 0.2\n")
    with pytest.raises(SettingsError, match=re.escape(str(user))):
        temperature()


def test_a_profile_lies_over_the_rest_of_its_file(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = user_file(
        tmp_path,
        "[default]\nctx = 1\nseed = 1\ntemperature = 0.1\n[chat]\nctx = 2\n"
        "[profile.work]\nctx = 3\ntemperature = 0.3\n[profile.work.chat]\nseed = 4\n",
    )
    (here / "colibri.toml").write_text("[default]\ntemperature = 0.5\n")
    plain = prepare(OutputOptions(), "chat")
    assert (plain.integer("ctx"), plain.integer("seed"), plain.text("profile")) == (2, 1, None)
    for settings in (
        prepare(OutputOptions(profile="work"), "chat"),
        effective_settings(None, "chat", "work"),
    ):
        assert (settings.integer("ctx"), settings.integer("seed")) == (3, 4)
        assert settings["ctx"].origin.name == f"{user} [profile.work]"
        assert settings.number("temperature") == 0.5  # the project's file counts more
    assert prepare(OutputOptions(profile="work"), "run").integer("seed") == 1
    monkeypatch.setenv("COLI_PROFILE", "work")
    assert prepare(OutputOptions(), "chat").integer("ctx") == 3
    monkeypatch.setenv("COLI_CTX", "9")
    assert prepare(ChatOptions(), "chat").integer("ctx") == 9
    assert prepare(ChatOptions(ctx="10"), "chat").integer("ctx") == 10


def test_a_file_may_choose_the_usual_profile(here: Path, tmp_path: Path) -> None:
    user_file(tmp_path, "[profile.a]\nctx = 1\n[profile.b]\nctx = 2\n")
    (here / "colibri.toml").write_text("[default]\nprofile = 'b'\n")
    assert prepare(OutputOptions(), "run").integer("ctx") == 2
    assert prepare(OutputOptions(profile="a"), "run").integer("ctx") == 1


def test_an_unknown_profile_is_an_error_that_names_the_known(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file(tmp_path, "[profile.home]\nctx = 1\n")
    (here / "colibri.toml").write_text("[profile.work]\nctx = 2\n")
    with pytest.raises(SettingsError, match="--profile: there is no profile 'wrok'") as caught:
        prepare(OutputOptions(profile="wrok"), "run")
    assert caught.value.hint == "there are home, work"
    monkeypatch.setenv("COLI_PROFILE", "nope")
    with pytest.raises(SettingsError, match="COLI_PROFILE"):
        prepare(OutputOptions(), "run")


def test_plugins_of_both_files_count(here: Path, tmp_path: Path) -> None:
    user_file(tmp_path, "[plugins]\ndisabled = ['a']\n[plugins.p]\nx = 1\ny = 1\n")
    assert plugin_choice().disabled == {"a"}
    (here / "colibri.toml").write_text("[plugins.p]\ny = 2\n")
    assert plugin_choice().disabled == {"a"}
    assert plugin_choice().tables == {"p": {"x": 1, "y": 2}}
    (here / "colibri.toml").write_text("[plugins]\ndisabled = ['b']\n")
    assert plugin_choice().disabled == {"b"}


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
        ("profile = 'a'", r"profile.*\[default\]"),
        ("[profile]\nctx = 1", r"ctx.*\[profile.work\]"),
        ("[profile.a]\nprofile = 'b'", r"\[profile.a\]"),
        ("[default]\nprofile = 3", "profile"),
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
