"""EngineClient against a scripted process: streams, stops, cancels, crashes, nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from colibri_cli.errors import (
    CapabilityMissing,
    EngineCrashed,
    EngineStartError,
    RequestRefused,
)
from colibri_cli.logs import configure_logs
from colibri_cli.supervisor.client import EngineClient
from colibri_cli.supervisor.requests import EngineRequest, RequestEvent
from colibri_cli.supervisor.spawn import spawn_engine
from colibri_protocol.errors import ColibriError, ContextLengthExceeded, ExpertReadFailed
from colibri_protocol.messages import (
    Accepted,
    Finished,
    FinishReason,
    Progress,
    RequestOptions,
    Segment,
    SegmentKind,
    TextDelta,
    Word,
)
from tests.fakes.supervised import configured, connected, run_async

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.supervisor.spawn import EngineLaunch


def ask(text: str, **options: object) -> EngineRequest:
    return EngineRequest((Segment(SegmentKind.TEXT, text),), RequestOptions(**options))  # type: ignore[arg-type]


async def collect(client: EngineClient, request: EngineRequest) -> list[RequestEvent]:
    async with client.submit(request) as stream:
        return [event async for event in stream]


def text_of(events: list[RequestEvent]) -> bytes:
    return b"".join(event.payload for event in events if isinstance(event, TextDelta))


def test_a_request_streams_accept_progress_text_and_figures(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(launch) as client:
            events = await collect(client, ask("[[reply one two]]"))
            assert isinstance(events[0], Accepted)
            assert any(isinstance(event, Progress) for event in events)
            assert text_of(events) == b"one two"
            last = events[-1]
            assert isinstance(last, Finished)
            assert last.finish is FinishReason.STOP
            assert client.model is not None
            assert client.telemetry.profile is not None
            assert client.telemetry.expert_map is not None

    run_async(body)


def test_two_requests_do_not_mix(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(launch) as client:
            one, two = await asyncio.gather(
                collect(client, ask("[[pieces a|b|c]] [[slow 0.01]]")),
                collect(client, ask("[[pieces x|y|z]] [[slow 0.01]]")),
            )
            assert (text_of(one), text_of(two)) == (b"abc", b"xyz")

    run_async(body)


def test_stop_ends_normally_and_cancel_frees_the_slot(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(configured(launch, num_slots=1)) as client:
            async with client.submit(ask("[[endless]] [[slow 0.005]]")) as stream:
                seen: list[RequestEvent] = []
                async for event in stream:
                    seen.append(event)
                    if len(seen) == 6:
                        stream.stop()
                        stream.stop()
                assert isinstance(seen[-1], Finished)
                assert seen[-1].finish is FinishReason.STOPPED
            async with client.submit(ask("[[endless]]")) as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break  # leaving the block cancels
            assert text_of(await collect(client, ask("[[reply free]]"))) == b"free"

    run_async(body)


def test_refusals_become_errors_of_ours(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(configured(launch, context_length=10)) as client:
            with pytest.raises(ContextLengthExceeded) as caught:
                await collect(client, ask("x" * 100))
            assert (caught.value.prompt_tokens, caught.value.limit) == (25, 10)
            with pytest.raises(RequestRefused, match="BAD_REQUEST nope"):
                await collect(client, ask("[[error BAD_REQUEST nope]]"))
            with pytest.raises(RequestRefused, match="INTERNAL"):
                await collect(client, ask("[[late-error INTERNAL x]]"))
            with pytest.raises(RequestRefused):
                await collect(client, ask("[[error0]]"))
            with pytest.raises(ColibriError):
                await collect(client, ask("[[twice]]"))
            assert text_of(await collect(client, ask("[[reply ok]]"))) == b"ok"

    run_async(body)


def test_an_expert_that_cannot_be_read_is_an_error_by_name(launch: EngineLaunch) -> None:
    async def body() -> None:
        detail = "out-00000.safetensors: experts.3: Input/output error; check the disk"
        async with connected(launch) as client:
            with pytest.raises(ExpertReadFailed) as caught:
                await collect(client, ask(f"[[late-error READ_FAILED {detail}]]"))
            assert f"{caught.value.message}; {caught.value.hint}" == detail
            assert caught.value.hint == "check the disk"
            assert text_of(await collect(client, ask("[[reply ok]]"))) == b"ok"

    run_async(body)


def test_unknown_lines_are_ignored(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(configured(launch, noise=True)) as client:
            assert text_of(await collect(client, ask("[[unknown]] [[reply ok]]"))) == b"ok"

    run_async(body)


def test_counts_counters_and_heartbeats(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(launch) as client:
            assert await client.count((Segment(SegmentKind.TEXT, "12345678"),)) == 2
            assert await client.stats() == {"num_requests": 0}
            await client.ping()

    run_async(body)


def test_an_option_the_engine_did_not_announce_is_refused(launch: EngineLaunch) -> None:
    words = [word for word in Word if word not in {Word.LOGPROBS, Word.STATS, Word.GRAMMAR}]

    async def body() -> None:
        async with connected(configured(launch, words=words)) as client:
            with pytest.raises(CapabilityMissing, match="logprobs"):
                client.submit(ask("hi", logprobs=2))
            with pytest.raises(CapabilityMissing):
                await client.stats()

    run_async(body)


def test_a_baseline_engine_gets_the_baseline_form(launch: EngineLaunch) -> None:
    baseline = replace(launch, environment={"COLI_CAPS": "0"})

    async def body() -> None:
        async with connected(baseline) as client:
            assert client.caps == frozenset()
            assert client.model is None
            request = EngineRequest(
                (Segment(SegmentKind.CONTROL, "<a>"), Segment(SegmentKind.TEXT, "[[prompt]]"))
            )
            assert text_of(await collect(client, request)) == b"<a>[[prompt]]"
            with pytest.raises(CapabilityMissing, match="seed"):
                client.submit(ask("hi", seed=1))

    run_async(body)


@pytest.mark.parametrize(
    ("script", "match", "name", "code"),
    [
        ("[[die 2]] [[tokens 9]]", "SIGKILL", "SIGKILL", None),
        ("[[exit 7 1]] [[tokens 9]]", "exit code 7", None, 7),
        ("[[garbage 1]] [[tokens 9]]", "broke the protocol", "SIGKILL", None),
    ],
)
def test_the_end_of_the_process_is_explained(
    launch: EngineLaunch, script: str, match: str, name: str | None, code: int | None
) -> None:
    async def body() -> None:
        async with connected(launch) as client:
            waiting = asyncio.create_task(collect(client, ask("[[silent 30]]")))
            await asyncio.sleep(0)
            with pytest.raises(EngineCrashed, match=match) as caught:
                await collect(client, ask(script))
            assert (caught.value.signal, caught.value.exit_code) == (name, code)
            with pytest.raises(EngineCrashed):
                await waiting
            with pytest.raises(EngineCrashed):
                client.submit(ask("hi"))
            if "die" in script:
                assert "dying on demand" in caught.value.stderr_tail[-1]
                assert "memory" in (caught.value.hint or "")

    run_async(body)


def test_start_failures_keep_the_engines_own_words(launch: EngineLaunch) -> None:
    failed = {"code": "checkpoint_error", "message": "x.gguf is cut", "hint": "pull it again"}

    async def body() -> None:
        with pytest.raises(EngineStartError, match=r"x\.gguf is cut") as caught:
            async with connected(configured(launch, failed=failed)):
                pass
        assert caught.value.code == "checkpoint_error"
        assert caught.value.hint == "pull it again"
        with pytest.raises(EngineCrashed, match="exit code 5 before it was ready") as crashed:
            async with connected(configured(launch, exit_code=5, stderr="no space")):
                pass
        assert crashed.value.stderr_tail == ("no space",)

    run_async(body)


def test_what_an_engine_warns_of_is_shown_and_the_rest_is_detail(
    launch: EngineLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "coli-engine: WARNING: one",
        "coli-engine: NOTICE: two",
        "coli-engine: ERROR: three",
        "coli-engine: INFO: four",
    )

    async def body() -> None:
        async with connected(configured(launch, stderr="\n".join(lines))) as client:
            await collect(client, ask("hi"))
            assert client.stderr_lines == lines

    for verbosity, expected in ((0, 3), (1, 4)):
        configure_logs(verbosity)
        run_async(body)
        shown = [
            line for line in capsys.readouterr().err.splitlines() if "colibri_cli.engine" in line
        ]
        assert len(shown) == expected
        assert "WARNING colibri_cli.engine: one" in shown[0]
        assert "NOTICE  colibri_cli.engine: two" in shown[1]
        assert "ERROR   colibri_cli.engine: three" in shown[2]


def test_a_missing_program_is_one_error(launch: EngineLaunch, tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(EngineStartError, match="cannot run"):
            await spawn_engine(replace(launch, engine_bin=tmp_path / "nothing"))

    run_async(body)


def test_close_ends_even_a_process_that_listens_to_nothing(launch: EngineLaunch) -> None:
    async def body() -> None:
        client = EngineClient(await spawn_engine(configured(launch, hang=True)))
        await asyncio.sleep(0.3)
        os.kill(client.pid, signal.SIGSTOP)
        await client.close(grace_s=0.1)
        report = await client.wait_ended()
        assert report.signal_name in {"SIGTERM", "SIGKILL"}

    run_async(body)


def test_memory_stays_bounded_on_endless_error_lines(launch: EngineLaunch) -> None:
    async def body() -> None:
        async with connected(configured(launch, stderr="x" * 100_000 + "\n" * 500)) as client:
            await collect(client, ask("hi"))
            assert sum(map(len, client.stderr_lines)) < 200_000

    run_async(body)


class ReadyProcess:
    """An engine whose whole output is there at once, farther ahead than one read takes."""

    returncode = 0

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self.stdin = None
        self.stderr.feed_eof()
        self.stdout.feed_data(b"\x01\x01READY\x01\x01\nSTAT 0 0 0 0\n")

    async def wait(self) -> int:
        return self.returncode


def test_an_engine_that_is_far_ahead_keeps_nobody_waiting() -> None:
    async def body() -> None:
        process = ReadyProcess()
        client = EngineClient(cast("asyncio.subprocess.Process", process))
        await client.handshake()
        async with client.submit(ask("all of it")) as stream:
            process.stdout.feed_data(b"ACCEPT 1 3\n" + b"DATA 1 2\nab\n" * 30_000)
            process.stdout.feed_data(b"DONE 1 STAT 30000 1 0 0 3 0\n")
            process.stdout.feed_eof()
            assert isinstance(await anext(stream), Accepted)
            assert not stream.is_done, "everything was read before anybody had a turn"
            assert len(text_of([event async for event in stream])) == 60_000

    run_async(body)
