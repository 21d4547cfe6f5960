"""`coli serve --engine vllm`: a `vllm` with the real routes is started, watched and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli.backends.upstreams.opening import vllm_launch
from colibri_cli.backends.upstreams.vllm import ServedVllm, VllmLaunch
from colibri_cli.errors import EngineCrashed, EngineStartError, UsageError
from colibri_cli.supervisor.lifecycle import RestartPolicy
from colibri_protocol.settings import resolve
from tests.fakes import scripted_upstream
from tests.fakes.supervised import run_async
from tests.gateway.upstream_rig import Front, front_of, until

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

FAST = RestartPolicy(first_delay_s=0.05, max_failures=2)


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is started as `vllm` is and writes down how."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    script = Path(scripted_upstream.__file__)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("SCRIPTED_ARGV", str(tmp_path / "argv"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLI_API_KEY", "k-secret")
    return program


def starts(tmp_path: Path) -> list[list[str]]:
    """Return the command lines so far; `ended` for an orderly end."""
    file = tmp_path / "argv"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def launch_of(**settings: object) -> VllmLaunch:
    return vllm_launch(resolve({}, {}, {"engine_kind": "vllm", **settings}))


def front(launch: VllmLaunch) -> AbstractAsyncContextManager[Front]:
    return front_of("", make=lambda on_state: ServedVllm(launch, on_state, FAST))


def test_it_is_started_awaited_and_ended(vllm: Path, tmp_path: Path) -> None:
    async def body() -> None:
        async with front(launch_of(model="org/some-model", engine_args="--seed 7")) as gateway:
            answer = (await gateway.chat("hello there")).json()
            assert answer["choices"][0]["message"]["content"] == "hello there"
            assert answer["model"] == "org/some-model"
            assert (await gateway.health())[1]["upstream"]["server"] == "vllm"
            (argv,) = starts(tmp_path)
            assert argv[:2] == ["serve", "org/some-model"]
            assert argv[-2:] == ["--seed", "7"]
            assert argv[argv.index("--host") + 1] == "127.0.0.1"
            assert "--enable-prompt-tokens-details" in argv
            assert "k-secret" not in " ".join(argv)
        assert starts(tmp_path)[-1] == ["ended", "0"]

    run_async(body, 40)


def test_it_finishes_what_runs_before_it_is_ended(vllm: Path, tmp_path: Path) -> None:
    async def body() -> None:
        async with front(launch_of(model="m")) as gateway:
            asking = asyncio.create_task(gateway.chat("tokens 2000"))
            await until(lambda: gateway.run.services.scheduler.active == 1)
            gateway.serving.cancel()  # as SIGTERM does
            assert (await asking).status_code == 200
            await asyncio.gather(gateway.serving, return_exceptions=True)
        assert starts(tmp_path)[-1] == ["ended", "0"]

    run_async(body, 40)


def test_it_is_started_again(vllm: Path, tmp_path: Path) -> None:
    async def body() -> None:
        async with front(launch_of(model="m")) as gateway:
            asking = asyncio.create_task(gateway.chat("hang"))
            backend = gateway.run.services.backend
            assert isinstance(backend, ServedVllm)
            await until(lambda: gateway.run.services.scheduler.active == 1)
            os.kill(backend.pid, signal.SIGKILL)
            assert (await asking).status_code in {502, 503}
            await gateway.until_status(503)
            await gateway.until_status(200)
            assert (await gateway.chat("hi")).status_code == 200
            assert len(starts(tmp_path)) == 2
            assert "SIGKILL" in (await gateway.health())[1]["engine"]["last_end"]

    run_async(body, 60)


def test_workers_that_outlive_it_are_ended_and_hold_nothing_up(vllm: Path, tmp_path: Path) -> None:
    """Engine processes of vLLM survive a killed API server, with its output still open."""
    workers = tmp_path / "workers"
    lines = vllm.read_text().splitlines()
    lines.insert(1, f"sleep 600 &\necho $! >> {workers}")
    vllm.write_text("\n".join(lines) + "\n")

    def is_alive(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"

    async def body() -> None:
        async with front(launch_of(model="m")) as gateway:
            backend = gateway.run.services.backend
            assert isinstance(backend, ServedVllm)
            (worker,) = map(int, workers.read_text().split())
            assert is_alive(worker)
            os.kill(backend.pid, signal.SIGKILL)
            await gateway.until_status(503)
            await gateway.until_status(200)
            assert not is_alive(worker)
            assert (await gateway.chat("hi")).status_code == 200
        await until(lambda: not any(is_alive(int(p)) for p in workers.read_text().split()))

    run_async(body, 60)


def test_one_that_cannot_start_says_why(vllm: Path) -> None:
    async def body() -> None:
        with pytest.raises(EngineCrashed) as crashed:
            async with front(launch_of(model="m", engine_args="--exit-code 3")):
                pass
        assert crashed.value.exit_code == 3
        assert "scripted: no such device" in crashed.value.stderr_tail
        broken = VllmLaunch(str(vllm.parent), "m", "m")
        with pytest.raises(EngineStartError, match="cannot be started"):
            async with front(broken):
                pass

    run_async(body, 40)


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, []),
        ({"tensor_parallel": 4}, ["--tensor-parallel-size", "4"]),
        (
            {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2, "ctx": 8192},
            [
                *("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"),
                *("--distributed-executor-backend", "ray", "--max-model-len", "8192"),
            ],
        ),
        ({"engine_args": "--a 'b c'"}, ["--a", "b c"]),
    ],
)
def test_settings_become_arguments(
    vllm: Path, settings: dict[str, Any], arguments: list[str]
) -> None:
    assert list(launch_of(model="m", **settings).arguments) == arguments


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tensor_parallel": 3, "nodes": 2}, "3 x 1 GPUs"),
        ({"engine_args": "--a 'b"}, "quoted"),
        ({"engine_bin": "/no/such/vllm"}, "/no/such/vllm"),
    ],
)
def test_what_does_not_fit_is_refused(vllm: Path, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        launch_of(model="m", **settings)


def test_giving_up_ends_the_server(vllm: Path, tmp_path: Path) -> None:
    async def body() -> None:
        failing = vllm.with_name("failing")
        once = tmp_path / "once"
        failing.write_text(
            f'#!/bin/sh\n[ -e "{once}" ] && exit 4\n: > "{once}"\nexec "{vllm}" "$@"\n'
        )
        failing.chmod(0o755)
        async with front(VllmLaunch(str(failing), "m", "m")) as gateway:
            backend = gateway.run.services.backend
            assert isinstance(backend, ServedVllm)
            os.kill(backend.pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed, match="exit code 4"):
                await asyncio.shield(gateway.serving)

    run_async(body, 40)
