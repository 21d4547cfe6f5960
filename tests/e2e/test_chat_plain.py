"""`coli chat` without a terminal: one message per line in, plain text out."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import write_hf
from tests.gateway.routes.gateway_rig import GLM_MODEL

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def test_each_line_is_a_message_and_the_output_is_plain(served: CommandLine) -> None:
    done = served.run("chat", stdin="[[reply one]]\n\n[[reply two]]\n")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert "\x1b" not in done.stdout + done.stderr
    assert "tok/s" in done.stderr


def test_without_a_model_it_is_the_demo_of_the_store(served: CommandLine) -> None:
    del served.variables["COLI_MODEL"]
    directory = served.home / "data" / "colibri" / "models" / "demo"
    directory.mkdir(parents=True)
    (directory / "demo.gguf").write_bytes(b"")
    manifest = {"family": "glm4_moe", "target": "demo.gguf", "source": "demo", "num_bytes": 0}
    (directory / "model.json").write_text(json.dumps({**manifest, "num_experts": 36}))
    done = served.run("chat", stdin="[[reply one]]\n")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "· demo (" in done.stderr


def test_quiet_says_nothing_but_answers(served: CommandLine) -> None:
    done = served.run("chat", "-q", stdin="[[reply one]]\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")


def test_the_conversation_goes_on_and_holds_answers_only(served: CommandLine) -> None:
    done = served.run("chat", "-q", "--system", "S", stdin="[[reply yes]]\n[[prompt]]\n")
    assert done.stdout == (
        "yes\n<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n[[reply yes]]<|im_end|>\n"
        "<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\n[[prompt]]<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_an_answer_ends_where_the_model_begins_to_write_the_user(served: CommandLine) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps({"model": GLM_MODEL})
    reply = "[[reply ready<|user|>more and more]]"
    assert served.run("chat", "-q", stdin=f"{reply}\n").stdout == "ready\n"
    assert served.run("run", reply).stdout == "ready\n"


def test_a_block_of_lines_is_one_message(served: CommandLine) -> None:
    done = served.run("chat", "-q", stdin='"""[[echo]] a\n  b\n"""\n')
    assert done.stdout == "a\n  b\n"


def test_commands_work_on_plain_lines(served: CommandLine) -> None:
    done = served.run("chat", stdin="/nope\n/exit\n[[reply never]]\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "there is no command /nope" in done.stderr


def test_more_continues_a_cut_answer(served: CommandLine) -> None:
    done = served.run("chat", "--max-tokens", "2", stdin="[[tokens 5]]\n/more\n[[prompt]]\n")
    assert "cut off after 2 tokens" in done.stderr
    assert done.stdout.startswith("word0 word1 \n")


def test_the_context_given_is_said_and_enforced(served: CommandLine) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps({"context_length": 100})
    done = served.run("chat", stdin=f"{'x' * 440}\n[[reply short]]\n")
    assert "context 100" in done.stderr
    assert "limit of 100" in done.stderr
    assert done.stdout == "short\n"
    assert done.returncode == 0


def test_a_dead_engine_is_replaced_and_remembered(served: CommandLine) -> None:
    done = served.run("chat", stdin="[[die]]\n[[reply back]]\n")
    assert (done.returncode, done.stdout) == (6, "back\n")
    assert "SIGKILL" in done.stderr
    assert "ended unexpectedly once" in done.stderr


def test_without_restart_a_dead_engine_ends_the_chat(served: CommandLine) -> None:
    served.variables["COLI_ENGINE_RESTART"] = "0"
    done = served.run("chat", stdin="[[die]]\n[[reply never]]\n")
    assert (done.returncode, done.stdout) == (6, "")


def test_a_model_without_template_is_refused_with_the_remedy(served: CommandLine) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps({"model": {"chat_template": None}})
    done = served.run("chat", stdin="hi\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no chat template" in done.stderr
    assert "--no-template" in done.stderr


PLUGIN = """
from colibri_cli.plugin_api import ChatCommand, hookimpl

async def shout(chat, argument):
    if argument == "fail":
        raise ValueError("too loud")
    await chat.ask("[[echo]] " + argument.upper())

@hookimpl
def register_chat_commands(register):
    register(ChatCommand("shout", "say it loud", shout, ("loud",)))
"""


def test_a_plugin_adds_a_command(served: CommandLine) -> None:
    folder = served.home / "config" / "colibri" / "plugins"
    folder.mkdir(parents=True)
    (folder / "shouting.py").write_text(PLUGIN)
    (folder / "taken.py").write_text(PLUGIN.replace('"shout", "say', '"help", "say'))
    done = served.run("chat", stdin="/loud hello\n/shout fail\n/help shout\n")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
    assert "the plugin shouting failed: ValueError: too loud" in done.stderr
    assert "say it loud" in done.stderr
    assert "taken is broken and left out: the chat command /help exists" in done.stderr
    assert "Traceback" not in done.stderr


def test_conversations_are_kept_found_and_gone_on_with(served: CommandLine) -> None:
    served.run("chat", "-s", "Be brief.", stdin="[[reply In the sea.]] where do whales sleep?\n")
    assert served.run("chat", "--search", "whales cats").stdout == ""
    found = served.run("chat", "--search", "whales sle")
    name, *_ = found.stdout.split()
    assert "[whales] [sleep]" in found.stdout
    for way in (("--continue",), ("--resume", name.lower())):
        done = served.run("chat", *way, stdin="[[prompt]]\n")
        assert done.stdout.startswith("<|im_start|>system\nBe brief.<|im_end|>\n")
        assert "assistant\nIn the sea.<|im_end|>" in done.stdout
        assert "going on with" in done.stderr
    log = served.home / "data" / "colibri" / "logs.db"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize("way", [{"arguments": ["--no-log"]}, {"variable": "1"}])
def test_without_a_log_nothing_is_kept(served: CommandLine, way: dict[str, list[str]]) -> None:
    served.variables |= {"COLI_NO_LOG": "1"} if "variable" in way else {}
    done = served.run("chat", *way.get("arguments", []), stdin="[[reply one]]\n/history\n")
    assert done.stdout == "one\n"
    assert "keeps no log" in done.stderr
    assert not (served.home / "data" / "colibri" / "logs.db").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--continue"], "the log is empty"),
        (["--resume", "ZZ"], "the log is empty"),
        (["--continue", "--resume", "ZZ"], "contradict"),
    ],
)
def test_what_cannot_be_gone_on_with_is_said_before_a_model_is_loaded(
    served: CommandLine, arguments: list[str], problem: str
) -> None:
    done = served.run("chat", *arguments, stdin="hi\n")
    assert done.returncode in {1, 2}
    assert problem in done.stderr
    assert "ready in" not in done.stderr


def test_the_views_show_the_figures_of_the_engine(served: CommandLine) -> None:
    done = served.run("chat", "-q", stdin="[[reply one]]\n/tiers\n/nope\n[[reply two]]\n")
    assert done.stdout == "one\ntwo\n"
    assert len(done.stderr.splitlines()) == 4, "quiet leaves out all but views and errors"
    done = served.run("chat", stdin="[[reply one]]\n/tiers\n/experts\n/phases\n/queue\n")
    # What the scripted engine told: 0, 6 and 2 experts, half a GB; heat from 0 to 8;
    # 0.1, 0.2, 0.3 and 0.1 seconds.
    assert "VRAM 0 experts   = RAM 6 experts 0.5 GB   . disk 2 experts" in done.stderr
    assert "0 ░▒▒░\n1 ▒▒░▒" in done.stderr
    assert "d disk 14 %   e experts 29 %   a attention 43 %   h head 14 %" in done.stderr
    assert "has no queue" in done.stderr


def test_what_an_encoding_lacks_is_replaced_and_ends_nothing(served: CommandLine) -> None:
    served.variables |= {
        "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    done = served.run("chat", stdin="[[utf8]]\n/tiers\n/experts\n[[reply after]]\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("after\n")


def test_a_template_is_filled_and_sent(served: CommandLine) -> None:
    served.run("templates", "set", "tr", "Translate: $input [[prompt]]", "--system", "Be kind.")
    done = served.run("chat", stdin="/template tr good morning\n/template nope x\n/template\n")
    assert "system\nBe kind.<|im_end|>" in done.stdout
    assert "user\nTranslate: good morning [[prompt]]<|im_end|>" in done.stdout
    assert "there is no template 'nope'" in done.stderr
    assert "templates: tr; /template NAME [TEXT] sends one" in done.stderr


def test_the_plan_of_the_model_is_shown(tmp_path: Path) -> None:
    coli = CommandLine(tmp_path)
    model = write_hf(coli.home / "tiny", "glm4_moe").path
    coli.variables["XDG_CACHE_HOME"] = str(coli.home / "cache")
    done = coli.run("chat", "--no-attach", "--model", str(model), stdin="/plan\n")
    assert (done.returncode, done.stdout) == (0, "")
    planned = json.loads(coli.run("plan", str(model), "--json").stdout)
    assert planned["model"]["name"] in done.stderr
    assert "memory already" in done.stderr
