"""`coli serve` with another server behind: which flags go together, and what is said if not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "ftp://host"], "--upstream: 'ftp://host' is not the URL of a server"),
        (["--upstream", "host:8000"], "--upstream: 'host:8000' is not the URL of a server"),
        (["--upstream", "http://me:secret@host"], "--upstream takes no user, password or query"),
        (["--upstream", "http://host", "--ctx", "5"], "--ctx means nothing to --upstream"),
        (["--upstream", "http://host", "--kv-slots", "2"], "--kv-slots means nothing to --upst"),
        (["--upstream", "http://host", "--nodes", "2"], "--nodes means nothing to --upstream"),
        (["--upstream", "http://host", "--engine", "vllm"], "--upstream and --engine vllm excl"),
        (["--model", "m", "--concurrency", "2"], "--concurrency means nothing to our own eng"),
        (["--model", "m", "--tensor-parallel", "2"], "--tensor-parallel means nothing to our"),
        (["--engine", "vllm"], "no model was given"),
        (["--engine", "vllm", "--model", "m", "--numerics", "fast"], "--numerics means nothing"),
        (
            ["--engine", "vllm", "--model", "m", "--engine-bin", "/no/vllm"],
            "there is no program '/no/vllm' to start vLLM with",
        ),
        (["--upstream", "http://host", "--key-limit", "a:running=1"], "there is no key 'a'"),
    ],
)
def test_what_does_not_fit_is_said_at_once(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = CommandLine(tmp_path).run("serve", "--plain", "--port", "0", *arguments)
    assert message in done.stderr
    assert done.returncode in {2, 3}
    assert "secret" not in done.stderr
