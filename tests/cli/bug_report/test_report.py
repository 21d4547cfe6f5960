"""`coli report`: what is in the archive, and that no secret and no conversation is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from colibri_cli.logs import PROMPT_LOGGER
from tests.fakes.command_line import CommandLine

PLANTED = {
    name: f"Planted{name.replace('-', '')}9x"
    for name in (
        "config", "profile", "plugin", "key-file", "named-key", "profile-key-file", "variable",
        "token", "log", "url", "url-in-log", "header", "plain-in-log", "diag",
    )
}  # fmt: skip
KNOWN = (
    "config", "profile", "plugin", "key-file", "named-key", "profile-key-file", "variable", "token",
    "url",
)  # fmt: skip


def opened(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def plant(coli: CommandLine) -> None:
    """Put a key into every place where there can be one."""
    home = coli.home
    (home / "keys").write_text(
        f"{PLANTED['key-file']}\nann:{PLANTED['named-key']}\n", encoding="utf-8"
    )
    (home / "other-keys").write_text(PLANTED["profile-key-file"] + "\n", encoding="utf-8")
    config = home / "config" / "colibri" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"""[default]
upstream_api_key = "{PLANTED["config"]}"
upstream = "https://me:{PLANTED["url"]}@elsewhere:1/v1"
api_key_file = "{home / "keys"}"
engine_args = "--api-key {PLANTED["config"]}"
[serve]
log_file = "{home / "serve.log"}"
[profile.work]
upstream_api_key = "{PLANTED["profile"]}"
api_key_file = "{home / "other-keys"}"
[plugins.mail]
password = "{PLANTED["plugin"]}"
""",
        encoding="utf-8",
    )
    coli.variables |= {"COLI_API_KEY": PLANTED["variable"], "MY_TOKEN": PLANTED["token"]}
    lines = [
        f"GET /?api_key={PLANTED['log']} 200",
        f"asking http://me:{PLANTED['url-in-log']}@host/ failed",
        f"Authorization: Bearer {PLANTED['header']}",
        # Nothing marks these: they are known by their value.
        *(f"seen {PLANTED[name]}" for name in KNOWN),
        f"sk-{PLANTED['plain-in-log']} in {home}/models",
    ]
    (home / "serve.log").write_text(
        "".join(f"2026-12-01 10:00:00 INFO    colibri_cli.engine: {text}\n" for text in lines)
        + f"2026-12-01 10:00:01 DEBUG   {PROMPT_LOGGER}: dear diary\n",
        encoding="utf-8",
    )
    diag = home / "coli-diag"
    diag.mkdir()
    body = {"kind": "coli diag", "schema_version": 1, "token": PLANTED["diag"], "status": "ok"}
    (diag / "report.json").write_text(json.dumps(body), encoding="utf-8")
    with ChatLog(home / "data" / "colibri" / "logs.db"):
        pass


def test_no_secret_and_no_conversation_is_in_any_byte(served: CommandLine) -> None:
    plant(served)
    done = served.run("report", "--out", "r.zip")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(served.home / "r.zip")
    parts = opened(served.home / "r.zip")
    everything = "".join(parts.values()) + done.stderr + done.stdout
    raw = (served.home / "r.zip").read_bytes()
    for name, secret in PLANTED.items():
        assert secret not in everything, name
        assert secret.encode() not in raw, name
    assert "diary" not in everything
    assert str(served.home) not in "".join(parts.values())
    assert set(parts) == {
        "version.json", "doctor.json", "info.json", "settings.json", "log.txt", "diag.json"
    }  # fmt: skip
    assert "in ~/models" in parts["log.txt"]
    settings = json.loads(parts["settings.json"])["settings"]
    assert settings["api_key"] == {
        "value": "********", "origin": "environment", "source": "COLI_API_KEY"
    }  # fmt: skip
    assert settings["api_key_file"]["value"] == "~/keys"
    assert settings["upstream"]["value"] == "https://********@elsewhere:1/v1"
    assert settings["experts_per_token"]["value"] == 0
    assert json.loads(parts["version.json"])["coli"]
    assert "there is no plugin for [plugins.mail]" in parts["doctor.json"]
    assert (served.home / "r.zip").stat().st_mode & 0o777 == 0o600


def test_a_dry_run_lists_and_writes_nothing(coli: CommandLine) -> None:
    done = coli.run("report", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("version.json", "doctor.json", "info.json          absent: no model was given"):
        assert words in done.stdout
    assert "absent: what was said stays here; --with-log adds it" in done.stdout
    body = json.loads(coli.run("report", "--dry-run", "--json").stdout)
    assert body["path"] is None
    assert [part["name"] for part in body["parts"] if not part["is_absent"]] == [
        "version.json", "doctor.json", "settings.json"
    ]  # fmt: skip
    assert list(coli.home.glob("*.zip")) == []


def test_conversations_are_there_when_they_are_asked_for(coli: CommandLine) -> None:
    log = coli.home / "serve.log"
    log.write_text(f"2026-12-01 10:00:01 DEBUG   {PROMPT_LOGGER}: dear diary\n", encoding="utf-8")
    coli.variables["COLI_LOG_FILE"] = str(log)
    with ChatLog(coli.home / "data" / "colibri" / "logs.db") as kept:
        talk = LoggedConversation(id=new_id(), title="t", model="tiny")
        kept.add_turn(talk, LoggedTurn(prompt="hello kingfisher", response="hello"))
    for flags, is_there in (((), False), (("--with-log",), True)):
        done = coli.run("report", "-q", "--out", f"{is_there}.zip", *flags)
        assert (done.returncode, done.stderr) == (0, "")
        everything = str(opened(coli.home / f"{is_there}.zip"))
        assert ("kingfisher" in everything) is is_there
        assert ("diary" in everything) is is_there


def test_what_is_broken_is_part_of_the_report(coli: CommandLine) -> None:
    done = coli.run("report", "--model", "nowhere", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = coli.home.glob("coli-report-*.zip")
    assert done.stdout.strip() == str(found)
    parts = opened(found)
    assert "nowhere" in json.loads(parts["info.json"])["error"]["message"]
    doctor = json.loads(parts["doctor.json"])
    assert doctor["status"] == "error"
    assert doctor["checks"]


def test_nothing_is_written_over(coli: CommandLine) -> None:
    (coli.home / "r.zip").write_text("mine", encoding="utf-8")
    for out in ("r.zip", "nowhere/r.zip"):
        done = coli.run("report", "--out", out)
        assert (done.returncode, done.stdout) == (2, "")
        assert "is no new file in a folder" in done.stderr
    assert (coli.home / "r.zip").read_text(encoding="utf-8") == "mine"
    done = coli.run("report", "--log-file", "nowhere.log")
    assert (done.returncode, "there is no nowhere.log" in done.stderr) == (2, True)
