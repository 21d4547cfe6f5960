"""A path in the home directory of a user that does not exist is refused by the flag naming it."""

from __future__ import annotations

import pytest

from colibri_protocol.errors import SettingsError
from colibri_protocol.settings_table import SETTINGS
from tests.fakes.command_line import CommandLine

NOWHERE = "~nobody-here/x"


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("bench", "disk", NOWHERE), "DIR"),
        (("bench", "--model", ".", "--out", NOWHERE), "--out"),
        (("bench", "quality", "--model", ".", "--data", NOWHERE), "--data"),
        (("logs", "backup", NOWHERE), "FILE"),
        (("serve", "--model", ".", "--log-file", NOWHERE), "--log-file"),
        (("serve", "--model", ".", "--api-key-file", NOWHERE), "--api-key-file"),
        (("serve", "--model", ".", "--uds", NOWHERE), "--uds"),
        (("atlas", "sweep", "--model", ".", "--out", NOWHERE), "--out"),
        (("mirror", "plan", "--model", ".", "--mirror", NOWHERE), "--mirror"),
    ],
)
def test_a_flag(coli: CommandLine, arguments: tuple[str, ...], flag: str) -> None:
    done = coli.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "home directory of nobody" in done.stderr
    assert flag in done.stderr
    assert "write the path out" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_setting_that_is_a_path() -> None:
    paths = [row for row in SETTINGS.values() if row.kind.value == "path"]
    assert len(paths) > 5
    for row in paths:
        with pytest.raises(SettingsError, match="home directory of nobody"):
            row.parse(NOWHERE, "the test")
        assert row.parse("~/x", "the test") == "~/x"


def test_a_configuration_file(coli: CommandLine) -> None:
    done = coli.run("list", "--config", NOWHERE)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no configuration file '{NOWHERE}'" in done.stderr
