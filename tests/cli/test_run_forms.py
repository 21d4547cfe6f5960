"""Forms and sources of `coli run`: code only, lines of JSON, a dry run, files, the log, servers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from colibri_cli.chat.attaching_files import MAX_BYTES
from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal
from tests.fakes.tiny_checkpoint import write_hf

pytestmark = pytest.mark.e2e

CODE = "[[pieces Say:\n\n```py\nx = 1\n|```\n\nor\n\n```py\nx = 2\n```\n]]"


def test_only_the_first_or_last_block_of_code_is_printed(served: CommandLine) -> None:
    assert served.run("run", "-x", CODE).stdout == "x = 1\n"
    assert served.run("run", "--extract-last", CODE).stdout == "x = 2\n"
    done = served.run("run", "--extract", "[[reply no code]]")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no block of code" in done.stderr


def test_every_line_is_json_and_the_last_has_everything(served: CommandLine) -> None:
    template = "{{ messages[-1].content }}<think>"
    served.variables["FAKE_ENGINE"] = json.dumps({"model": {"chat_template": template}})
    done = served.run("run", "--jsonl", "[[pieces why</think>|one |two]]")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert "".join(line["text"] for line in lines if line["type"] == "reasoning") == "why"
    assert "".join(line["text"] for line in lines if line["type"] == "text") == "one two"
    assert lines[-1]["type"] == "done"
    assert lines[-1]["text"] == "one two"
    assert lines[-1]["usage"]["completion_tokens"] > 0


def test_a_dry_run_shows_the_prompt_and_the_options_and_asks_nobody(coli: CommandLine) -> None:
    model = write_hf(coli.home / "tiny", "glm4_moe").path
    coli.variables |= {"TEMP": "/tmp/x", "COLI_TEMP": "0.3", "COLI_MODEL": str(model)}
    (coli.home / "note.txt").write_text("forty-two")
    arguments = ("run", "--dry-run", "--system", "Be brief.", "-f", "note.txt", "--stop", "END")
    body = json.loads(coli.run(*arguments, "--json", "hi").stdout)
    assert body["options"]["temperature"] == 0.3
    assert body["options"]["max_tokens"] == 1024
    assert body["stop"] == ["END"]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nnote.txt:\n```\nforty-two\n```\n\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert body["problem"] is None
    text = coli.run(*arguments, "hi").stdout
    assert "temperature 0.3" in text
    assert "forty-two" in text
    assert not (coli.home / "data" / "colibri" / "logs.db").exists()
    plain = json.loads(coli.run("run", "--dry-run", "--json", "--no-template", "hi").stdout)
    assert (plain["prompt"], plain["messages"]) == ("hi", None)


def test_a_dry_run_says_why_there_is_no_prompt(served: CommandLine) -> None:
    body = json.loads(served.run("run", "--dry-run", "--json", "hi").stdout)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["problem"] is not None or body["prompt"] is not None
    assert served.run("run", "--dry-run", "--model", "missing", "hi").returncode == 3


def test_files_and_standard_input_go_along(served: CommandLine) -> None:
    (served.home / "a.txt").write_text("alpha")
    done = served.run("run", "-f", "a.txt", "-f", "-", "[[prompt]] what?", stdin="beta")
    assert "a.txt:\n```\nalpha\n```" in done.stdout
    assert "standard input:\n```\nbeta\n```" in done.stdout
    assert served.run("run", "--stdin-last", "[[echo]] q", stdin="context").stdout == (
        "q\n\ncontext\n"
    )
    (served.home / "binary").write_bytes(b"\xff\x00")
    for name in ("binary", "none.txt"):
        done = served.run("run", "-f", name, "hi")
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr


class Pages(BaseHTTPRequestHandler):
    """A text, one that is too large, and nothing else."""

    def do_GET(self) -> None:
        body = {"/note": b"forty-two", "/large": b"x" * (MAX_BYTES + 1)}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def pages() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_goes_along_where_fetching_is_allowed(served: CommandLine, pages: str) -> None:
    done = served.run("run", "-f", f"{pages}/note", "--allow-net", "[[prompt]] what?")
    assert f"{pages}/note:\n```\nforty-two\n```" in done.stdout, done.stderr
    refused = served.run("run", "-f", f"{pages}/note", "hi")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--allow-net" in refused.stderr
    for url, words in (
        (f"{pages}/none", "HTTP 404"),
        (f"{pages}/large", "1,048,576"),
        ("http://127.0.0.1:1/x", "cannot be fetched"),
        ("http://[::1/x", "cannot be fetched"),
    ):
        done = served.run("run", "-f", url, "--allow-net", "hi")
        assert (done.returncode, done.stdout) == (2, ""), url
        assert url in done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) <= 2


BOLD = "[[pieces # Title\n\nSome |**bo|ld** words.\n]]"


def test_markdown_is_what_a_terminal_shows_and_a_pipe_only_where_asked(
    served: CommandLine,
) -> None:
    raw = "# Title\n\nSome **bold** words.\n"
    assert served.run("run", BOLD).stdout == raw
    assert served.run("run", "--raw", BOLD).stdout == raw
    shown = served.run("run", "--markdown", BOLD).stdout
    assert "Some bold words.\n" in shown
    assert "#" not in shown
    assert "\x1b" not in shown
    for arguments, is_raw in (((), False), (("--raw",), True)):
        with Terminal(
            [*served.argv, "run", "--no-attach", *arguments, BOLD], served.environment, served.home
        ) as terminal:
            terminal.expect("words.")
            assert terminal.wait() == 0
            assert ("**bold**" in terminal.text) == is_raw
            assert ("Some bold words." in terminal.text) != is_raw


def test_a_schema_and_a_grammar_reach_the_engine(served: CommandLine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    (served.home / "schema.json").write_text(json.dumps(schema))
    for given in ("schema.json", json.dumps(schema)):
        options = json.loads(
            served.run("run", "--dry-run", "--json", "--schema", given, "hi").stdout
        )
        grammar = options["options"]["grammar"]
        assert (grammar["kind"], json.loads(grammar["text"])) == ("json_schema", schema)
    (served.home / "g.gbnf").write_text('root ::= "yes" | "no"\n')
    options = json.loads(
        served.run("run", "--dry-run", "--json", "--grammar", "g.gbnf", "hi").stdout
    )
    assert options["options"]["grammar"]["kind"] == "gbnf"
    for flag, value in (("--schema", "[]"), ("--schema", "{x"), ("--grammar", "none.gbnf")):
        done = served.run("run", flag, value, "hi")
        assert (done.returncode, done.stdout) == (2, "")
        assert flag in done.stderr


def test_a_grammar_holds_for_a_real_model(coli: CommandLine) -> None:
    model = write_hf(coli.home / "tiny", "glm4_moe").path
    (coli.home / "g.gbnf").write_text('root ::= "hello" | "world"\n')
    done = coli.run("run", "--model", str(model), "--grammar", "g.gbnf", "hi")
    assert done.stdout in {"hello\n", "world\n"}, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json", "--jsonl"),
        ("-x", "--json"),
        ("-x", "--extract-last"),
        ("--markdown", "--json"),
        ("--markdown", "-x"),
        ("--schema", "{}", "--grammar", "g"),
        ("-c", "--cid", "01"),
        ("--attach", "http://127.0.0.1:1", "--no-attach"),
        ("--no-template", "-c"),
        ("--no-template", "-f", "a.txt"),
    ],
)
def test_what_contradicts_is_refused(served: CommandLine, arguments: tuple[str, ...]) -> None:
    done = served.run("run", *arguments, "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) <= 2


def conversations(coli: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(coli.run("logs", "list", "--json").stdout)[
        "conversations"
    ]
    return found


def test_answers_are_kept_and_a_conversation_goes_on(served: CommandLine) -> None:
    served.run("run", "--system", "Be kind.", "[[reply first]]")
    (conversation,) = conversations(served)
    assert (conversation["model"], conversation["num_turns"]) == ("tiny", 1)
    done = served.run("run", "-c", "[[prompt]]")
    assert "Be kind." in done.stdout
    assert "first" in done.stdout
    served.run("run", "[[reply other]]")
    assert len(conversations(served)) == 2
    done = served.run("run", "--cid", conversation["id"][:12], "[[prompt]]")
    assert "first" in done.stdout
    assert "other" not in done.stdout
    body = json.loads(served.run("logs", "show", conversation["id"], "--json").stdout)
    assert len(body["responses"]) == 3
    assert body["responses"][0]["response"] == "first"
    assert served.run("logs", "list", "-q", "first").stdout.count(conversation["id"][:10]) >= 1


@pytest.mark.parametrize("way", ["-n", "--no-log", "COLI_NO_LOG"])
def test_nothing_is_kept_where_that_is_not_wanted(served: CommandLine, way: str) -> None:
    flags = (way,) if way.startswith("-") else ()
    if not flags:
        served.variables[way] = "1"
    assert served.run("run", *flags, "[[reply hi]]").stdout == "hi\n"
    assert conversations(served) == []
    if not flags:
        served.run("run", "--log", "[[reply hi]]")
        assert len(conversations(served)) == 1


def test_a_log_that_cannot_be_written_costs_no_answer(served: CommandLine) -> None:
    (served.home / "data" / "colibri").mkdir(parents=True)
    (served.home / "data" / "colibri" / "logs.db").write_bytes(b"no database" * 100)
    done = served.run("run", "[[reply hi]]")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "not kept" in done.stderr


@pytest.fixture
def server(served: CommandLine) -> Iterator[str]:
    process: subprocess.Popen[bytes] = served.start("serve", "--port", "0")
    assert process.stderr is not None
    url, line = None, ""
    while "ready:" not in line:
        line = process.stderr.readline().decode()
        assert line, "the server ended"
        found = re.search(r"listening on (http://[\d.:]+)", line)
        url = found[1] if found else url
    assert url is not None
    yield url
    process.terminate()
    process.communicate(timeout=60)


def test_a_server_is_asked_instead_of_an_engine(served: CommandLine, server: str) -> None:
    served.variables["COLI_ENGINE"] = str(Path("/nonexistent"))
    done = served.run("run", "--attach", server, "--json", "[[reply from the server]]")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == "from the server"
    assert conversations(served)[0]["endpoint"] == server


def test_a_server_that_is_silent_is_named(served: CommandLine) -> None:
    done = served.run("run", "--attach", "http://127.0.0.1:9", "hi")
    assert (done.returncode, done.stdout) == (5, "")
    assert "http://127.0.0.1:9" in done.stderr
