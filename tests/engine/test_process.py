"""The real engine process on a tiny model: start, signals, ends, and what outlives whom."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from colibri_protocol.messages import (
    Cancel,
    Count,
    Counted,
    Finished,
    FinishReason,
    ModelInfo,
    Ping,
    Pong,
    Progress,
    RequestFailed,
    Segment,
    SegmentKind,
    StartFailed,
    Submit,
    TextDelta,
)
from tests.engine.gateway_end import LIMIT_S, GatewayEnd
from tests.fakes.tiny_checkpoint import write_hf, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
LONG = "hello world " * 12
ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 100_000}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    # a long context, so that a reply goes on for as long as a test wants
    write_hf(directory, "glm4_moe", max_position_embeddings=1 << 20)
    return directory


def environment(model: Path | None, **settings: str) -> dict[str, str]:
    drop = ("COLI_", "SNAP", "CTX", "SEED", "NGEN", "KV_SLOTS", "NUCLEUS", "OMP_NUM_THREADS")
    found = {name: text for name, text in os.environ.items() if not name.startswith(drop)}
    found["PYTHONPATH"] = str(ROOT / "engine")
    if model is not None:
        found["SNAP"] = str(model)
    found |= {"COLI_CAPS": "1", "COLI_NUM_THREADS": "1", "COLI_CTX": "100000", "COLI_KV_SAVE": "0"}
    return found | settings


class EngineProcess(GatewayEnd):
    """One engine process; use as a context."""

    def __init__(
        self,
        model: Path | None,
        **settings: str,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "colibri_engine", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(model, **settings),
        )
        assert self.process.stdin
        assert self.process.stdout
        super().__init__(os.dup(self.process.stdout.fileno()), os.dup(self.process.stdin.fileno()))
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Self:
        try:
            self.greet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            assert self.process.stderr
            self.process.stderr.close()

    def ended(self) -> tuple[int, str]:
        """Return exit code and standard error of a process that ends by itself."""
        assert self.process.stderr
        text = self.process.stderr.read().decode()
        return self.process.wait(LIMIT_S), text


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in {"Z", "X"}


def wait_until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    limit = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


# ---- service ----


def test_both_forms_of_the_protocol(model_dir: Path) -> None:
    with EngineProcess(model_dir) as engine:
        model = engine.wait_for(ModelInfo).data
        assert model["family"] == "glm4_moe"
        assert (model["mixture_layers"], model["draft_layer"]) == ([1], None)
        request_id = engine.submit("hello world", max_tokens=5, ignore_eos=True, temperature=0.0)
        assert engine.wait_for(Finished, request_id).completion_tokens == 5
        text = engine.data(request_id)
        engine.end_input()
        assert engine.ended() == (0, "")
    with EngineProcess(model_dir, COLI_CAPS="0") as engine:
        engine.send(Submit(1, 0, b"hello world", 5, 0.0, 1.0))
        engine.wait_for(Finished, 1)
        assert engine.data(1)[: len(text)] == text
        assert b"CAPS" not in engine.raw
        assert b"MODEL" not in engine.raw


def test_a_seed_means_the_same_answer_after_a_restart_and_in_company(model_dir: Path) -> None:
    wanted: dict[str, Any] = {"seed": 7, "temperature": 1.0, "max_tokens": 20, "ignore_eos": True}
    answers = []
    for company in (0, 3):
        with EngineProcess(model_dir, COLI_KV_SLOTS="4", COLI_PREFILL_CHUNK="8") as engine:
            others = [engine.submit(LONG, **ENDLESS, temperature=1.5) for _ in range(company)]
            if others:
                engine.wait_for(TextDelta, others[0])
            request_id = engine.submit("hello world", **wanted)
            engine.wait_for(Finished, request_id)
            answers.append(engine.data(request_id))
            for other in others:
                engine.send(Cancel(other))
    assert answers[0] == answers[1]
    assert answers[0]


@pytest.mark.parametrize("reached", [Progress, TextDelta])
def test_cancel_frees_the_slot_at_once(model_dir: Path, reached: type) -> None:
    with EngineProcess(model_dir, COLI_PREFILL_CHUNK="16") as engine:
        request_id = engine.submit("hello world " * 3000, **ENDLESS)
        engine.wait_for(reached, request_id)
        started = time.monotonic()
        engine.send(Cancel(request_id))
        assert engine.wait_for(RequestFailed, request_id).code == "CANCELLED"
        assert time.monotonic() - started < 1
        follow_up = engine.submit("hello world", max_tokens=3, ignore_eos=True)
        engine.wait_for(Finished, follow_up)


def test_control_words_in_text_are_only_text(model_dir: Path) -> None:
    with EngineProcess(model_dir) as engine:
        counts = []
        for kind in (SegmentKind.TEXT, SegmentKind.CONTROL):
            request_id = engine.session.next_id()
            engine.send(Count(request_id, (Segment(kind, "a<|user|>b"),)))
            counts.append(engine.wait_for(Counted, request_id).num_tokens)
    assert counts[1] == 3
    assert counts[0] > 3


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(model_dir: Path) -> None:
    with EngineProcess(model_dir, COLI_CTX="100") as engine:
        refusal = engine.wait_for(RequestFailed, engine.submit("a " * 110))
        used, limit = map(int, refusal.detail.split())
        assert (refusal.code, used > 98, limit) == ("CONTEXT_EXCEEDED", True, 98)
        short = engine.submit("a", max_tokens=100_000, ignore_eos=True)
        assert engine.wait_for(Finished, short).completion_tokens == 100 - 1 - 1


def test_an_idle_engine_sleeps(model_dir: Path) -> None:
    def cpu_ticks() -> int:
        fields = Path(f"/proc/{engine.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    with EngineProcess(model_dir, COLI_NUM_THREADS="2") as engine:
        engine.wait_for(Finished, engine.submit("hello", max_tokens=3, ignore_eos=True))
        time.sleep(0.2)  # kernel threads spin for a bounded moment
        before = cpu_ticks()
        time.sleep(0.5)
        assert cpu_ticks() - before <= 1


# ---- starts that fail ----


def failed_start(model: Path | None, **settings: str) -> tuple[int, str, StartFailed | None]:
    engine = EngineProcess(model, **settings)
    try:
        engine.read_to_end()
        code, text = engine.ended()
    finally:
        engine.__exit__()
    told = [m for m in engine.messages if isinstance(m, StartFailed)]
    return code, text, told[0] if told else None


def test_a_start_without_a_model_is_one_line() -> None:
    code, text, told = failed_start(None)
    assert code == 3
    assert text.startswith("coli-engine: error: no model folder was given; ")
    assert text.count("\n") == 1
    assert told is not None
    assert told.code == "no_model"


def test_a_path_without_a_model_is_one_line(tmp_path: Path) -> None:
    code, text, told = failed_start(tmp_path / "nowhere")
    assert (code, text.count("\n")) == (3, 1)
    assert "nowhere" in text
    assert told is not None
    assert told.code == "checkpoint_error"


def test_a_path_that_is_no_text_is_one_line_and_told(model_dir: Path) -> None:
    grammar = os.fsdecode(b"/nowhere/\xff")
    code, text, told = failed_start(model_dir, COLI_DRAFT_GRAMMAR=grammar)
    assert (code, text.count("\n")) == (2, 1)
    assert told is not None
    assert "/nowhere/\\udcff" in told.message


def test_without_caps_the_output_stays_empty() -> None:
    engine = EngineProcess(None, COLI_CAPS="0")
    try:
        engine.read_to_end()
        assert engine.raw == b""
        assert engine.ended()[0] == 3
    finally:
        engine.__exit__()


def test_a_directory_without_a_tokenizer_is_one_line(tmp_path: Path) -> None:
    write_hf(tmp_path / "m")
    (tmp_path / "m/tokenizer.json").unlink()
    code, text, _ = failed_start(tmp_path / "m")
    assert (code, text.count("\n")) == (3, 1)
    assert "tokenizer" in text


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    directory = write_hf(tmp_path / "m").path
    import json

    body = json.loads((directory / "config.json").read_text())
    write_json(directory / "config.json", body | {"model_type": "transmogrifier"})
    code, text, told = failed_start(directory)
    assert (code, text.count("\n")) == (3, 1)
    assert "transmogrifier" in text
    assert told is not None
    assert told.code == "unsupported_model"


def test_a_bad_setting_is_one_line_and_another_code(model_dir: Path) -> None:
    code, text, told = failed_start(model_dir, COLI_TEMP="/tmp")
    assert (code, text.count("\n")) == (2, 1)
    assert "COLI_TEMP" in text
    assert told is not None
    assert told.details["setting"] == "temperature"


def test_an_instruction_set_this_machine_lacks_is_named(model_dir: Path) -> None:
    missing = "neon" if os.uname().machine == "x86_64" else "avx512"
    code, text, told = failed_start(model_dir, COLI_ISA=missing)
    assert (code, text.count("\n")) == (2, 1)
    assert missing in text
    assert told is not None
    assert told.code == "kernel_unavailable"


def test_an_unknown_setting_is_warned_about(model_dir: Path) -> None:
    with EngineProcess(model_dir, COLI_NUM_THREAD="2", COLI_MMAP="1") as engine:
        engine.end_input()
        told = engine.ended()[1]
        assert "did you mean COLI_NUM_THREADS" in told
        assert "COLI_MMAP is not read: experts are read into slots" in told


# ---- ends ----


def test_the_end_of_input_lets_a_reply_finish(model_dir: Path) -> None:
    with EngineProcess(model_dir) as engine:
        request_id = engine.submit("hello", max_tokens=300, ignore_eos=True)
        engine.wait_for(TextDelta, request_id)
        engine.end_input()
        engine.read_to_end()
        assert engine.wait_for(Finished, request_id).completion_tokens == 300
        assert engine.ended() == (0, "")


def test_interrupt_ends_the_reply_and_not_the_engine(model_dir: Path) -> None:
    with EngineProcess(model_dir) as engine:
        request_id = engine.submit("hello", **ENDLESS)
        engine.wait_for(TextDelta, request_id)
        engine.process.send_signal(signal.SIGINT)
        assert engine.wait_for(Finished, request_id).finish is FinishReason.STOPPED
        engine.send(Ping(1))
        engine.wait_for(Pong)


@pytest.mark.parametrize("is_busy", [False, True])
def test_terminate_ends_the_reply_and_the_engine(model_dir: Path, is_busy: bool) -> None:
    with EngineProcess(model_dir) as engine:
        request_id = 0
        if is_busy:
            request_id = engine.submit("hello", **ENDLESS)
            engine.wait_for(TextDelta, request_id)
        engine.process.terminate()
        engine.read_to_end()
        if is_busy:
            assert engine.wait_for(Finished, request_id).finish is FinishReason.STOPPED
        assert engine.ended() == (0, "")


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_engine_nobody_reads_ends_quietly(model_dir: Path, is_busy: bool) -> None:
    with EngineProcess(model_dir) as engine:
        if is_busy:
            engine.wait_for(TextDelta, engine.submit("hello", **ENDLESS))
        engine.close_output()
        assert engine.ended() == (0, "")


PARENT = """
import os, subprocess, sys, time
if os.environ.pop("LEAK", ""):  # somebody else keeps the other ends of the pipes open
    r, w = os.pipe(); r2, w2 = os.pipe()
    os.environ["COLI_PARENT_PID"] = str(os.getpid())
    p = subprocess.Popen([sys.executable, "-P", "-m", "colibri_engine"], stdin=r, stdout=w2)
    os.close(r); os.close(w2)
    keeper = subprocess.Popen(["sleep", "60"], pass_fds=(w, r2), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL)
    source, sink = r2, w
else:
    p = subprocess.Popen([sys.executable, "-P", "-m", "colibri_engine"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
    keeper, source, sink = p, p.stdout.fileno(), p.stdin.fileno()
seen = b""
while b"MODEL" not in seen:
    seen += os.read(source, 65536)
if os.environ["BUSY"]:
    options = b'{"max_tokens":90000,"ignore_eos":true}'
    os.write(sink, b"SUBMITX 1 -1 %d 9\\n%bC 5\\nhello\\n" % (len(options), options))
    while b"DATA" not in seen:
        seen += os.read(source, 65536)
print(p.pid, keeper.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("busy", ["", "1"])
@pytest.mark.parametrize("leak", ["", "1"])
def test_no_orphan_is_left_when_the_parent_is_killed(model_dir: Path, busy: str, leak: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        env=environment(model_dir, BUSY=busy, LEAK=leak),
    )
    assert parent.stdout
    ready, _, _ = select.select([parent.stdout], [], [], LIMIT_S)
    pid, keeper = map(int, parent.stdout.readline().split()) if ready else (0, 0)
    try:
        assert is_running(pid)
        parent.kill()
        wait_until(lambda: not is_running(pid), 10)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        for other in {pid, keeper}:
            if is_running(other):
                os.kill(other, signal.SIGKILL)


STUCK = """
import os, sys, time
from queue import SimpleQueue
from colibri_engine.streams import start_watch, take_stdout
output = take_stdout()
print("a stray print", flush=True)
os.system("echo a stray child")
os.write(output, b"ready\\n")
start_watch(output, SimpleQueue(), parent=None, grace_s=0.2)
time.sleep(60)  # as good as native code that does not come back
"""


def test_a_stuck_engine_ends_when_nobody_reads_and_stray_output_goes_elsewhere() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(None),
    )
    assert process.stdout
    assert process.stderr
    try:
        assert process.stdout.readline() == b"ready\n"
        process.stdout.close()
        assert process.wait(10) == 0
        assert process.stderr.read() == b"a stray print\na stray child\n"
    finally:
        process.kill()
        process.stderr.close()
