"""EngineSupervisor: states, restarts with back-off, giving up, hang kill, no orphans."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from colibri_cli.errors import EngineCrashed, EngineHung, EngineNotReady, EngineStartError
from colibri_cli.supervisor.lifecycle import EngineState, EngineSupervisor, RestartPolicy
from colibri_cli.supervisor.requests import EngineRequest
from colibri_protocol.messages import RequestOptions, Segment, SegmentKind, TextDelta, Word
from tests.fakes.supervised import configured, run_async

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.supervisor.spawn import EngineLaunch

FAST = RestartPolicy(first_delay_s=0.01, max_delay_s=0.05, max_failures=3)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in {"", "Z"}


async def answer(supervisor: EngineSupervisor, text: str) -> str:
    client = await supervisor.client()
    request = EngineRequest((Segment(SegmentKind.TEXT, text),), RequestOptions(max_tokens=9))
    async with client.submit(request) as stream:
        return b"".join([e.payload async for e in stream if isinstance(e, TextDelta)]).decode()


def test_states_of_a_quiet_life(launch: EngineLaunch) -> None:
    async def body() -> None:
        states: list[EngineState] = []
        supervisor = EngineSupervisor(launch, FAST, states.append)
        with pytest.raises(EngineNotReady):
            await supervisor.client()
        client = await supervisor.start()
        assert await answer(supervisor, "[[reply hi]]") == "hi"
        await supervisor.stop()
        await supervisor.stop()
        assert states == ["starting", "ready", "stopped"]
        assert not is_running(client.pid)

    run_async(body)


def test_a_crash_hurts_one_request_and_the_next_is_answered(launch: EngineLaunch) -> None:
    async def body() -> None:
        states: list[EngineState] = []
        supervisor = EngineSupervisor(launch, FAST, states.append)
        first = await supervisor.start()
        with pytest.raises(EngineCrashed, match="SIGKILL"):
            await answer(supervisor, "[[die]] boom")
        assert await answer(supervisor, "[[reply again]]") == "again"
        second = supervisor.current
        assert second is not None
        assert second.pid != first.pid
        assert supervisor.num_crashes == 1
        assert states[1:] == ["ready", "restarting", "ready"]
        await supervisor.stop()
        assert not is_running(second.pid)

    run_async(body)


def test_it_gives_up_when_the_engine_does_not_come_back(
    launch: EngineLaunch, tmp_path: Path
) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(launch, FAST)
        client = await supervisor.start()
        (tmp_path / "fake_engine.json").write_text('{"exit_code": 9, "stderr": "disk is gone"}')
        os.kill(client.pid, signal.SIGKILL)
        await client.wait_ended()
        with pytest.raises(EngineCrashed, match="exit code 9"):
            await supervisor.client()
        assert supervisor.state is EngineState.FAILED
        await supervisor.stop()

    run_async(body)


def test_an_engine_that_gets_ready_is_replaced_however_often_it_is_killed(
    launch: EngineLaunch,
) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(launch, FAST)
        await supervisor.start()
        for _ in range(FAST.max_failures + 2):
            with pytest.raises(EngineCrashed):
                await answer(supervisor, "[[die]]")
        assert await answer(supervisor, "[[reply still here]]") == "still here"
        await supervisor.stop()

    run_async(body)


def test_an_engine_that_has_answered_is_replaced_without_growing_delay(
    launch: EngineLaunch,
) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(launch, RestartPolicy(first_delay_s=0.01, max_delay_s=1e6))
        await supervisor.start()
        for _ in range(12):  # doubled each time, the last delay alone would be 40 s
            assert await answer(supervisor, "[[reply hi]]") == "hi"
            with pytest.raises(EngineCrashed):
                await answer(supervisor, "[[die]]")
        await supervisor.stop()

    run_async(body)


def test_who_asks_during_a_long_pause_is_told_how_long_it_is(launch: EngineLaunch) -> None:
    async def body() -> None:
        policy = RestartPolicy(first_delay_s=1000, max_delay_s=1e6, patience_s=5)
        supervisor = EngineSupervisor(launch, policy)
        await supervisor.start()
        assert supervisor.ready_in_s == 0
        with pytest.raises(EngineCrashed):
            await answer(supervisor, "[[die]]")
        assert supervisor.state is EngineState.RESTARTING
        for _ in range(2):
            with pytest.raises(EngineNotReady) as caught:
                await supervisor.client()
            assert caught.value.ready_in_s is not None
            assert 900 < caught.value.ready_in_s < 1030  # the pause, and the load that follows
            await asyncio.sleep(0.05)
        await supervisor.stop()

    run_async(body)


def test_patience_ends_when_a_start_takes_longer_than_the_last(
    launch: EngineLaunch, tmp_path: Path
) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(launch, replace(FAST, patience_s=0.5))
        client = await supervisor.start()
        (tmp_path / "fake_engine.json").write_text('{"hang": true}')
        os.kill(client.pid, signal.SIGKILL)
        await client.wait_ended()
        with pytest.raises(EngineNotReady):
            await supervisor.client()
        await supervisor.stop()

    run_async(body)


def test_a_refused_start_is_final_and_named(launch: EngineLaunch) -> None:
    async def body() -> None:
        failed = {"code": "unsupported_model", "message": "architecture foo", "hint": "use bar"}
        supervisor = EngineSupervisor(configured(launch, failed=failed), FAST)
        with pytest.raises(EngineStartError, match="architecture foo"):
            await supervisor.start()
        assert supervisor.state is EngineState.FAILED
        with pytest.raises(EngineStartError):
            await supervisor.client()
        await supervisor.stop()

    run_async(body)


def test_no_restart_when_the_policy_forbids_it(launch: EngineLaunch) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(launch, replace(FAST, max_failures=0))
        client = await supervisor.start()
        os.kill(client.pid, signal.SIGKILL)
        await client.wait_ended()
        with pytest.raises(EngineCrashed):
            await supervisor.client()
        await supervisor.stop()

    run_async(body)


def test_a_hung_engine_is_ended_only_if_a_limit_was_set(launch: EngineLaunch) -> None:
    async def body() -> None:
        impatient = replace(FAST, heartbeat_s=0.02, hang_timeout_s=0.2)
        supervisor = EngineSupervisor(launch, impatient)
        await supervisor.start()
        with pytest.raises(EngineHung, match=r"did not answer for 0\.2 s"):
            await answer(supervisor, "[[hang]]")
        assert await answer(supervisor, "[[reply back]]") == "back"
        await supervisor.stop()

    run_async(body)


def test_engines_without_heartbeat_are_never_pinged(launch: EngineLaunch) -> None:
    words = [word for word in Word if word not in {Word.PING, Word.GRAMMAR, Word.DRAFT}]

    async def body() -> None:
        impatient = replace(FAST, heartbeat_s=0.01, hang_timeout_s=0.05)
        supervisor = EngineSupervisor(configured(launch, words=words), impatient)
        await supervisor.start()
        await asyncio.sleep(0.2)
        assert supervisor.num_crashes == 0
        await supervisor.stop()

    run_async(body)


def test_leaving_during_the_start_leaves_no_process(launch: EngineLaunch) -> None:
    async def body() -> None:
        supervisor = EngineSupervisor(configured(launch, hang=True), FAST)
        starting = asyncio.create_task(supervisor.start())
        await asyncio.sleep(0.3)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert supervisor.state is EngineState.STOPPED

    run_async(body)
    children = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "fake_engine" not in children.stdout


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_orphan_however_the_parent_dies(
    launch: EngineLaunch, tmp_path: Path, how: signal.Signals
) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from colibri_cli.supervisor.lifecycle import EngineSupervisor\n"
        "from colibri_cli.supervisor.spawn import EngineLaunch\n"
        "async def main():\n"
        "    supervisor = EngineSupervisor(EngineLaunch(Path('.'), Path(sys.argv[1])))\n"
        "    client = await supervisor.start()\n"
        "    print(client.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, str(parent), str(launch.engine_bin)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    engine_pid = int(process.stdout.readline())
    assert is_running(engine_pid)
    process.send_signal(how)
    process.wait(10)
    process.stdout.close()
    deadline = time.monotonic() + 10
    while is_running(engine_pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(engine_pid)


def test_back_off_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy(first_delay_s=0.5, max_delay_s=3)
    assert [policy.delay_s(failures) for failures in range(1, 6)] == [0.5, 1, 2, 3, 3]
