"""The settings table: sources and their order, messages, and the rows themselves."""

from __future__ import annotations

import re
from typing import Any

import pytest

from colibri_protocol.errors import SettingsError
from colibri_protocol.foreign_variables import (
    FOREIGN_VARIABLES,
    ForeignVariable,
    foreign_variables,
)
from colibri_protocol.settings import (
    SETTINGS,
    Kind,
    Origin,
    OriginKind,
    ResolvedSettings,
    Scope,
    Setting,
    resolve,
    settings_of,
    unknown_variables,
)


def resolved_from(environ: dict[str, str], scope: Scope = Scope.CLI) -> ResolvedSettings:
    return resolve({}, environ, {}, scope=scope)


def from_environment(scope: Scope = Scope.CLI, **environ: str) -> ResolvedSettings:
    return resolved_from(environ, scope)


# ---- order of sources ----


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default() -> None:
    flags, environ, config = {"ctx": 1}, {"COLI_CTX": "2"}, {"ctx": 3}
    cases: list[tuple[dict[str, Any], dict[str, str], dict[str, Any], int, Origin]] = [
        (flags, environ, config, 1, Origin(OriginKind.FLAG, "--ctx")),
        ({"ctx": None}, environ, config, 2, Origin(OriginKind.ENVIRONMENT, "COLI_CTX")),
        ({}, {}, config, 3, Origin(OriginKind.CONFIG, "coli.toml")),
        ({}, {}, {}, 0, Origin(OriginKind.DEFAULT)),
    ]
    for some_flags, some_environ, some_config, value, origin in cases:
        resolved = resolve(some_flags, some_environ, some_config, config_name="coli.toml")
        assert resolved.integer("ctx") == value
        assert resolved["ctx"].origin == origin
        assert resolved.is_given("ctx") == (origin.kind is not OriginKind.DEFAULT)


def test_the_preferred_variable_beats_the_older_names() -> None:
    both = from_environment(COLI_CTX="1024", CTX="2048")
    assert both.integer("ctx") == 1024
    older = from_environment(CTX="2048", NUCLEUS="0.5", NGEN="7", KV_SLOTS="2", SEED="3")
    assert older["ctx"].origin == Origin(OriginKind.ENVIRONMENT, "CTX")
    assert older.number("top_p") == 0.5
    assert [older.integer(name) for name in ("max_tokens", "kv_slots", "seed")] == [7, 2, 3]


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_not_set(empty: str) -> None:
    assert from_environment(COLI_CTX=empty, CTX="9").integer("ctx") == 9
    assert not from_environment(COLI_TEMP=empty).is_given("temperature")


def test_temp_is_never_read() -> None:
    assert from_environment(TEMP="/tmp/x", COLI_TEMP="0.3").number("temperature") == 0.3
    assert from_environment(TEMP="0.3").number("temperature") is None
    assert all("TEMP" not in row.env for row in SETTINGS.values())


def test_an_engine_reads_the_model_path_it_was_given_first() -> None:
    resolved = from_environment(Scope.ENGINE, SNAP="/given", COLI_MODEL="/other")
    assert resolved.text("model_path") == "/given"
    assert from_environment(Scope.ENGINE, COLI_MODEL="/other").text("model_path") == "/other"
    assert "model" not in resolved
    assert "model_path" not in from_environment()


# ---- typed values ----


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("COLI_TEMP", "hot", "a number in 0..2"),
        ("COLI_TEMP", "/tmp", "a number in 0..2"),
        ("COLI_TEMP", "nan", "a number in 0..2"),
        ("COLI_TEMP", "-0.1", "a number in 0..2"),
        ("COLI_TEMP", "2.5", "a number in 0..2"),
        ("COLI_TEMP", "0_5", "a number in 0..2"),
        ("COLI_CTX", "-1", "a whole number of at least 0"),
        ("CTX", "4k", "a whole number of at least 0"),
        ("COLI_CTX", "4096.0", "a whole number of at least 0"),
        ("COLI_CTX", "9" * 30, "a whole number of at least 0 and at most 2147483647"),
        ("KV_SLOTS", "17", "a whole number in 1..16"),
        ("NUCLEUS", "0", "a number above 0 and at most 1"),
        ("NGEN", "0", "a whole number of at least 1"),
        ("COLI_SEED", "-1", "a whole number of at least 0"),
        ("COLI_NUMERICS", "fats", "one of default, fast, float"),
        ("OMP_NUM_THREADS", "many", "a whole number in 1..1024"),
        ("COLI_THINK", "perhaps", "1 or 0"),
        ("COLI_MODEL", "a\0b", "a text"),
    ],
)
def test_a_bad_variable_is_named_with_its_value_and_the_remedy(
    variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolved_from({variable: text})
    error = caught.value
    assert error.message == f"{variable}: {text!r} is not {allowed}"
    assert error.hint == f"set {variable} to {allowed}, or leave it out"
    assert error.source == variable
    assert variable in SETTINGS[error.setting].env


def test_a_long_value_is_shortened_in_messages() -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(COLI_TEMP="x" * 500)
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("text", ["1", "true", "YES", "on", " On "])
def test_switches_are_on(text: str) -> None:
    assert from_environment(COLI_THINK=text).switch("think") is True


@pytest.mark.parametrize("text", ["0", "false", "NO", "off"])
def test_switches_are_off(text: str) -> None:
    assert from_environment(COLI_SHOW_THINK=text).switch("show_think") is False


@pytest.mark.parametrize("temperature", ["0", "1e-6", "1e-30", ".5", "2.", "+1"])
def test_any_temperature_from_zero_up_is_a_temperature(temperature: str) -> None:
    assert from_environment(COLI_TEMP=temperature).number("temperature") == float(temperature)


def test_a_list_of_thread_counts_gives_the_outermost() -> None:
    assert from_environment(OMP_NUM_THREADS="4,2").integer("num_threads") == 4
    with pytest.raises(SettingsError):
        from_environment(COLI_NUM_THREADS="4,2")


def test_flags_come_typed_or_as_text() -> None:
    flags = {"temperature": 1, "numerics": "FAST", "ctx": "512", "think": True, "model": " m "}
    resolved = resolve(flags, {}, {})
    assert resolved.number("temperature") == 1.0
    assert isinstance(resolved.number("temperature"), float)
    assert resolved.text("numerics") == "fast"
    assert resolved.integer("ctx") == 512
    assert resolved.switch("think") is True
    assert resolved.text("model") == "m"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ctx", True),
        ("ctx", 1.0),
        ("ctx", -1),
        ("ctx", 10**400),
        ("temperature", False),
        ("temperature", float("inf")),
        ("temperature", [1]),
        ("think", 1),
        ("numerics", "FAST"),
        ("model", ""),
        ("model", 5),
    ],
)
def test_a_value_of_a_wrong_type_in_the_file_is_an_error(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"{name} in coli\.toml"):
        resolve({}, {}, {name: value}, config_name="coli.toml")


def test_an_unknown_key_in_the_file_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="'numercs'") as caught:
        resolve({}, {}, {"numercs": "fast"})
    assert caught.value.hint == "did you mean 'numerics'?"
    with pytest.raises(SettingsError) as caught:
        resolve({}, {}, {"zzzzzz": 1})
    assert caught.value.hint == "see docs/settings.md"


def test_a_bad_setting_of_the_other_side_is_not_ours_to_refuse() -> None:
    assert from_environment(Scope.ENGINE, COLI_TOP_K="x")
    assert from_environment(Scope.CLI, COLI_ISA="x")


def test_unknown_variables_are_reported_with_the_nearest_name() -> None:
    environ = {
        "COLI_NUM_THREAD": "1",
        "COLI_XYZZY_1": "1",
        "COLI_CTX": "1",
        "COLI_SERVE_PORT": "8000",
        "COLI_MMAP": "1",
        "PATH": "",
    }
    assert unknown_variables(environ) == {
        "COLI_NUM_THREAD": "COLI_NUM_THREADS",
        "COLI_XYZZY_1": None,
    }


def test_a_variable_of_another_engine_is_told_with_what_there_is_instead() -> None:
    found = foreign_variables({"COLI_MMAP": "1", "TOPP": "0.7", "PATH": "/bin", "MLOCK": ""})
    assert sorted(found) == ["COLI_MMAP", "TOPP"]
    assert "COLI_EXPERTS_PER_TOKEN" in found["TOPP"]


def test_a_variable_that_asks_for_what_happens_anyway_is_not_told() -> None:
    assert foreign_variables({"COLI_NUMA": "0", "PIPE": "1", "TOPP": "0"}) == {}
    assert list(foreign_variables({"PIPE": "0"})) == ["PIPE"]
    assert foreign_variables({"COLI_GPU": "none", "COLI_VRAM_GB": "0"}) == {}
    assert list(foreign_variables({"COLI_GPU": "0", "COLI_VRAM_GB": "24"})) == [
        "COLI_GPU",
        "COLI_VRAM_GB",
    ]


@pytest.mark.parametrize("row", FOREIGN_VARIABLES, ids=lambda row: row.name)
def test_what_stands_in_for_a_variable_of_another_engine_exists(row: ForeignVariable) -> None:
    known = {name for setting in SETTINGS.values() for name in (*setting.env, *setting.flags)}
    assert row.name not in known
    named = re.findall(r"COLI_[A-Z_]+|(?<=[( ])--[a-z-]+(?=[,) ]|$)", row.instead)
    assert set(named) - {"--interleave", "--record"} <= known


# ---- on to the engine ----


def test_given_settings_reach_an_engine_under_all_their_names() -> None:
    resolved = resolve(
        {"ctx": 8192, "temperature": 0.25, "top_k": 5, "model": "demo"}, {"NGEN": "9"}, {}
    )
    assert resolved.engine_environment() == {
        "COLI_CTX": "8192",
        "CTX": "8192",
        "COLI_TEMP": "0.25",
        "COLI_MAX_TOKENS": "9",
        "NGEN": "9",
    }
    again = resolve({}, resolved.engine_environment(), {}, scope=Scope.ENGINE)
    assert again.integer("ctx") == 8192
    assert again.number("temperature") == 0.25


# ---- the rows ----


def test_another_programs_variable_gets_its_own_word() -> None:
    def written(mode: str) -> dict[str, str]:
        return resolve({"read_mode": mode}, {}, {}).engine_environment()

    assert written("io_uring") == {"COLI_READ_MODE": "io_uring", "URING": "1"}
    assert written("threads") == {"COLI_READ_MODE": "threads", "URING": "0"}
    assert written("auto") == {"COLI_READ_MODE": "auto"}


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_a_row_is_complete_and_its_default_allowed(row: Setting) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*", row.name)
    assert row.help.endswith(".")
    assert row.env
    assert row.default is not None or row.default_text
    if row.default is not None:
        assert row.check(row.default, "default") == row.default
    assert bool(row.choices) == (row.kind is Kind.CHOICE)
    assert all(re.fullmatch(r"--[a-z][a-z-]*", flag) for flag in row.flags)


def test_no_two_settings_of_one_side_share_a_variable_or_a_flag() -> None:
    for scope in (Scope.CLI, Scope.ENGINE):
        rows = settings_of(scope).values()
        names = [name for row in rows for name in (*row.env, *row.flags)]
        assert len(names) == len(set(names))


def test_settings_of_an_engine_have_no_flag() -> None:
    assert all(not row.flags for row in SETTINGS.values() if row.scope is Scope.ENGINE)
