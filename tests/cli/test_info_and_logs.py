"""`coli info` and `coli logs`: what is there is shown, what is not is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import write_hf, write_json

pytestmark = pytest.mark.e2e


def test_info_tells_family_layers_experts_and_sizes(coli: CommandLine) -> None:
    model = write_hf(coli.home / "tiny", "glm4_moe", num_shards=2).path
    (model / ".coli_usage").write_bytes(b"x" * 200_000)
    body = json.loads(coli.run("info", "--model", str(model), "--json").stdout)
    assert (body["model"]["model_type"], body["model"]["num_layers"]) == ("glm4_moe", 2)
    assert body["model"]["num_experts"] > 0
    assert len(body["files"]) == 2
    assert body["bytes"] == sum(file["bytes"] for file in body["files"]) > 0
    assert body["sidecars"][0]["name"] == ".coli_usage"
    assert body["problems"] == {}
    text = coli.run("info", "--model", str(model)).stdout
    assert "0.2 MB" in text
    assert "0.0 GB" not in text
    assert "\x1b" not in text


def test_info_on_an_empty_folder_says_what_is_missing_and_is_no_failure(coli: CommandLine) -> None:
    (coli.home / "empty").mkdir()
    done = coli.run("info", "--model", "./empty")
    assert done.returncode == 0
    assert "is empty" in done.stdout
    assert "ready, kernels" in done.stdout


def test_an_unknown_family_is_shown_by_its_own_name(coli: CommandLine) -> None:
    model = write_hf(coli.home / "tiny").path
    config = json.loads((model / "config.json").read_text())
    write_json(model / "config.json", {**config, "model_type": "quux_9"})
    body = json.loads(coli.run("info", "--model", str(model), "--json").stdout)
    assert "quux_9" in json.dumps(body["problems"])
    assert "model_type" not in body["model"]


def test_the_later_of_two_models_counts(coli: CommandLine) -> None:
    first, second = (write_hf(coli.home / name).path for name in ("first", "second"))

    def shown(*arguments: str) -> str:
        name: str = json.loads(coli.run(*arguments, "--json").stdout)["model"]["name"]
        return name

    assert shown("--model", str(first), "info") == "first"
    assert shown("info", "--model", str(second)) == "second"
    assert shown("--model", str(first), "info", "--model", str(second)) == "second"


def test_info_needs_a_model(coli: CommandLine) -> None:
    assert coli.run("info").returncode == 3


@pytest.fixture
def kept(coli: CommandLine) -> tuple[str, str]:
    ids = (new_id(), new_id())
    with ChatLog(coli.home / "data" / "colibri" / "logs.db") as log:
        for number, conversation_id in enumerate(ids):
            conversation = LoggedConversation(
                id=conversation_id, title=f"title {number}", model=f"model{number}"
            )
            turn = LoggedTurn(prompt=f"question {number}", response=f"kingfisher {number} \x1b[1m")
            log.add_turn(conversation, turn)
    return ids


def test_conversations_are_listed_searched_and_shown(
    coli: CommandLine, kept: tuple[str, str]
) -> None:
    rows = json.loads(coli.run("logs", "list", "--json").stdout)["conversations"]
    assert [row["id"] for row in rows] == [kept[1], kept[0]]
    assert (
        len(json.loads(coli.run("logs", "list", "--json", "-n", "1").stdout)["conversations"]) == 1
    )
    found = coli.run("logs", "list", "-q", "kingfisher 0").stdout
    assert kept[0][:10] in found
    assert "model1" not in found
    assert "\x1b" not in found
    only = json.loads(coli.run("logs", "list", "-m", "model0", "--json").stdout)["conversations"]
    assert [row["id"] for row in only] == [kept[0]]
    assert "question 1" in coli.run("logs", "show", kept[1]).stdout
    body = json.loads(coli.run("logs", "show", kept[1], "--json").stdout)
    assert body["responses"][0]["prompt"] == "question 1"


def test_a_conversation_is_removed_alone(coli: CommandLine, kept: tuple[str, str]) -> None:
    assert coli.run("logs", "rm", kept[0]).returncode == 0
    assert json.loads(coli.run("logs", "status", "--json").stdout)["conversations"] == 1
    done = coli.run("logs", "show", kept[0])
    assert (done.returncode, done.stdout) == (1, "")
    assert kept[0] in done.stderr


def test_a_copy_can_be_read_and_overwrites_nothing(
    coli: CommandLine, kept: tuple[str, str]
) -> None:
    assert coli.run("logs", "backup", "copy.db").returncode == 0
    copy = coli.home / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    with ChatLog(copy) as log:
        assert len(log.conversations()) == 2
    assert coli.run("logs", "backup", "copy.db").returncode == 2


def test_an_empty_log_is_no_error(coli: CommandLine) -> None:
    done = coli.run("logs", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(coli.run("logs", "status", "--json").stdout)["turns"] == 0
    assert Path(coli.run("logs", "path").stdout.strip()).name == "logs.db"


def test_conversations_are_exported_in_every_form(coli: CommandLine, kept: tuple[str, str]) -> None:
    text = coli.run("logs", "export").stdout
    assert text.index("question 0") < text.index("question 1")
    assert "question 0" not in coli.run("logs", "export", kept[1]).stdout
    body = json.loads(coli.run("logs", "export", "--format", "json").stdout)
    assert [c["conversation"]["id"] for c in body["conversations"]] == list(kept)
    page = coli.run("logs", "export", "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert page.count("<article>") == 2
    done = coli.run("logs", "export", "--format", "pdf")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pdf" in done.stderr


def test_markup_in_a_conversation_is_text_in_the_page(coli: CommandLine) -> None:
    with ChatLog(coli.home / "data" / "colibri" / "logs.db") as log:
        conversation = LoggedConversation(id=new_id(), title="t", model="m")
        evil = "<script>alert(1)</script> [a](javascript:alert(1))"
        log.add_turn(conversation, LoggedTurn(prompt=evil, response=evil))
    page = coli.run("logs", "export", "--format", "html").stdout
    assert "<script" not in page
    assert 'href="javascript' not in page


def test_vacuum_gives_the_room_back(coli: CommandLine, kept: tuple[str, str]) -> None:
    file = coli.home / "data" / "colibri" / "logs.db"
    with ChatLog(file) as log:
        conversation = LoggedConversation(id=new_id(), title="t", model="m")
        log.add_turn(conversation, LoggedTurn(prompt="p", response="x" * 2_000_000))
        log.remove(conversation.id)
    assert coli.run("logs", "vacuum").returncode == 0
    assert file.stat().st_size < 1_000_000
    assert json.loads(coli.run("logs", "status", "--json").stdout)["conversations"] == 2


def test_the_log_is_turned_off_and_on(coli: CommandLine) -> None:
    def is_off() -> bool:
        shown = coli.run("config", "get", "no_log").stdout.strip()
        return shown.lower() in {"1", "true"}

    assert coli.run("logs", "off").returncode == 0
    assert is_off()
    assert coli.run("logs", "on").returncode == 0
    assert not is_off()
    coli.variables["COLI_NO_LOG"] = "1"
    done = coli.run("logs", "on")
    assert done.returncode == 2
    assert "COLI_NO_LOG" in done.stderr
