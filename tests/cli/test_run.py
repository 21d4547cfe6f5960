"""`coli run`: what reaches standard output, how prompts come in, how it ends."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.fakes.terminal import Terminal

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def test_standard_output_is_the_answer_and_a_newline(served: CommandLine) -> None:
    done = served.run("run", "[[reply Hello  there]]")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello  there\n", "")


def test_an_answer_that_ends_its_line_gets_no_second_newline(served: CommandLine) -> None:
    assert served.run("run", "[[pieces a|\n]]").stdout == "a\n"


def test_characters_split_over_pieces_come_out_whole(served: CommandLine) -> None:
    assert served.run("run", "[[utf8]]").stdout == "Grüße, 世界 👋\n"
    assert served.run("run", "[[invalid-utf8]]").stdout == "ok\ufffd\ufffdok\ufffd\n"


def test_prompts_come_from_words_or_standard_input_or_both(served: CommandLine) -> None:
    assert served.run("run", "[[echo]]", "two", "words").stdout == "two words\n"
    assert served.run("run", stdin="[[echo]] piped\n").stdout == "piped\n"
    assert served.run("run", "-", stdin="[[echo]] dash").stdout == "dash\n"
    assert served.run("run", "[[echo]] question", stdin="context\n").stdout == (
        "context\n\n question\n"
    )
    assert served.run("run", stdin=" \n").returncode == 2
    assert served.run("run", stdin=b"\xff\xfe").returncode == 2


def test_sampling_options_reach_the_engine(served: CommandLine) -> None:
    arguments = ("--temp", "0", "--top-p", "0.5", "--top-k", "7", "--seed", "3", "--ngen", "9")
    done = served.run("run", *arguments, "[[options]]")
    assert json.loads(done.stdout) == {
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 7,
        "seed": 3,
    }


def test_a_flag_beats_the_variable_and_the_later_flag_the_earlier(served: CommandLine) -> None:
    served.variables |= {"COLI_TEMP": "0.3", "TEMP": "/tmp/x"}
    assert json.loads(served.run("run", "[[options]]").stdout)["temperature"] == 0.3
    done = served.run("--temp", "0.5", "run", "[[options]]")
    assert json.loads(done.stdout)["temperature"] == 0.5
    done = served.run("--temp", "0.5", "run", "[[options]]", "--temp", "0.7")
    assert json.loads(done.stdout)["temperature"] == 0.7


def test_a_configuration_file_comes_after_the_variables(served: CommandLine) -> None:
    (served.home / "colibri.toml").write_text(
        "[default]\ntemperature = 0.1\nseed = 5\n[run]\nmax_tokens = 3\n"
    )
    served.variables["COLI_SEED"] = "6"
    options = json.loads(served.run("run", "[[options]]").stdout)
    assert options == {"max_tokens": 3, "temperature": 0.1, "seed": 6}
    (served.home / "colibri.toml").write_text("[default]\ntemprature = 1\n")
    done = served.run("run", "hi")
    assert done.returncode == 2
    assert "temprature" in done.stderr
    assert "'temperature'" in done.stderr


def test_the_template_wraps_the_prompt_and_can_be_left_out(served: CommandLine) -> None:
    done = served.run("run", "--system", "Be kind.", "[[prompt]]")
    assert done.stdout.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n")
    assert served.run("run", "--no-template", "[[prompt]] x").stdout == "[[prompt]] x\n"


def test_stop_texts_end_the_answer(served: CommandLine) -> None:
    done = served.run("run", "--json", "--stop", "STOP", "[[pieces one ST|OP two]]")
    body = json.loads(done.stdout)
    assert (body["text"], body["finish"], body["stop_text"]) == ("one ", "stop", "STOP")


def test_json_is_one_document_with_everything(served: CommandLine) -> None:
    done = served.run("run", "--json", "[[reply a b]]")
    assert done.stderr == ""
    body = json.loads(done.stdout)
    assert body["text"] == "a b"
    assert body["schema_version"] == 1
    assert body["model"] == "tiny"
    assert body["usage"]["completion_tokens"] == 2
    assert body["timings"]["tokens_per_second"] > 0


def test_an_answer_cut_at_the_limit_says_which_setting(served: CommandLine) -> None:
    done = served.run("run", "--max-tokens", "2", "--stats", "[[tokens 9]]")
    assert done.stdout == "word0 word1 \n"
    assert "--max-tokens" in done.stderr
    assert "tok/s" in done.stderr


def test_reasoning_never_reaches_standard_output(served: CommandLine) -> None:
    template = "{{ messages[-1].content }}<think>"
    served.variables["FAKE_ENGINE"] = json.dumps({"model": {"chat_template": template}})
    done = served.run("run", "[[pieces abc</th|ink>d]]")
    assert (done.stdout, done.stderr) == ("d\n", "abc\n")
    served.variables["COLI_SHOW_THINK"] = "0"
    done = served.run("run", "[[pieces abc</th|ink>d]]")
    assert (done.stdout, done.stderr) == ("d\n", "")


def test_a_prompt_too_long_is_refused_with_both_numbers(served: CommandLine) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps({"context_length": 100})
    done = served.run("run", "x" * 440)
    assert (done.returncode, done.stdout) == (1, "")
    assert "100" in done.stderr
    assert "12" in done.stderr


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("[[die 1]] [[tokens 5]]", 6, "SIGKILL"),
        ("[[exit 3 1]] [[tokens 5]]", 6, "exit code 3"),
        ("[[garbage 1]] [[tokens 5]]", 6, "protocol"),
        ("[[error BAD_REQUEST no]]", 1, "BAD_REQUEST no"),
    ],
)
def test_what_goes_wrong_is_explained(
    served: CommandLine, script: str, code: int, said: str
) -> None:
    done = served.run("run", script)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout in {"", "word0 \n"}


@pytest.mark.parametrize(
    ("start", "code", "said"),
    [
        ({"failed": {"code": "checkpoint_error", "message": "x is cut"}}, 3, "x is cut"),
        ({"failed": {"code": "kernel_unavailable", "message": "no amx"}}, 2, "no amx"),
        ({"exit_code": 4, "stderr": "disk on fire"}, 6, "disk on fire"),
    ],
)
def test_an_engine_that_does_not_start_is_explained(
    served: CommandLine, start: dict[str, object], code: int, said: str
) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps(start)
    done = served.run("run", "hi")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_baseline_engine_works_with_the_directorys_template(served: CommandLine) -> None:
    model = served.home / "tiny"
    (model / "chat_template.jinja").write_text("<u>{{ messages[0].content }}<a>")
    engine = served.home / "baseline"
    engine.write_text(f'#!/bin/sh\nCOLI_CAPS=0 exec {served.variables["COLI_ENGINE"]} "$@"\n')
    engine.chmod(0o755)
    done = served.run("run", "--engine-bin", str(engine), "[[prompt]]")
    assert (done.returncode, done.stdout) == (0, "<u>[[prompt]]<a>\n")
    done = served.run("run", "--engine-bin", str(engine), "--seed", "1", "hi")
    assert done.returncode == 2
    assert "seed" in done.stderr


def test_ctrl_c_keeps_the_partial_text_and_ends_with_130(served: CommandLine) -> None:
    process = served.start("run", "[[endless]] [[slow 0.02]]")
    assert process.stdout is not None
    assert process.stdout.read(6) == b"word0 "
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert stdout.endswith(b"\n")
    assert b"Traceback" not in stderr


def test_sigterm_ends_with_143(served: CommandLine) -> None:
    process = served.start("run", "[[endless]] [[slow 0.02]]")
    assert process.stdout is not None
    process.stdout.read(6)
    process.terminate()
    _, stderr = process.communicate(timeout=10)
    assert (process.returncode, stderr) == (143, b"")


def test_a_closed_pipe_ends_quietly(served: CommandLine) -> None:
    process = served.start("run", "--max-tokens", "1000000", "[[endless]]")
    assert process.stdout is not None
    process.stdout.read(6)
    process.stdout.close()
    assert process.stderr is not None
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.returncode == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_warning_in_the_middle_of_an_answer_comes_behind_it(
    served: CommandLine, command: str
) -> None:
    prompt = "[[pieces one |two |three]] [[warn 1]] [[slow 0.1]]"
    arguments = (command, prompt) if command == "run" else (command, "--plain")
    with Terminal([*served.argv, *arguments], served.environment, served.home) as terminal:
        if command == "chat":
            terminal.type(f"{prompt}\r")
        terminal.expect("one two three\n", 120)
        terminal.expect("WARNING colibri_cli.engine: a disk was slow", 120)
