"""Mixed traffic for a long time: do the counters add up, and does anything leak?

    python benchmarks/longrun.py [--seconds 1800] [--clients 12] [--kill-every 20] [--model PATH]

A gateway in a process of its own (`longrun_server.py`), the scripted engine behind it, or ours with
a model. Clients send chat, messages and responses, whole and streamed, with tools, with errors,
with more than one choice; some leave in the middle of a stream, some before the first byte. Now and
then the engine is killed (SIGKILL). At the end, with no client left, admitted = completed + failed
+ aborted, and every request that was answered has an answer. The memory of the server (after a
warm-up of a fifth of the time), asyncio tasks and open descriptors must not grow; nor that of an
engine that is never killed. Prints a line every ten seconds and exits 1 when anything is amiss.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

import httpx
import numpy as np

from benchmarks.gateway import resident_mb
from tests.fakes.fake_engine import write_executable

HERE: Final = Path(__file__).resolve().parent
NUM_SLOTS: Final = 4
MAX_MB_PER_HOUR: Final = 20.0
SCRIPTED: Final = (
    *("[[tokens 5]]", "[[tokens 40]]", "[[slow 0.02]] [[tokens 20]]", "[[echo]] some words"),
    *("[[utf8]]", "[[error BAD_REQUEST no]]", "[[tokens 3]] [[late-error ENGINE_ERROR x]]"),
    *("[[silent 0.3]] [[tokens 2]]", "[[endless]]", "x" * 20_000, "[[slow 0.01]] [[endless]]"),
)
REAL: Final = (
    *("Hello", "What is the capital of France?", "Count from one to one hundred."),
    *("word " * 40, "世界 👋 " * 20, "x" * 60_000, ""),
)
KINDS: Final = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


@dataclass
class Traffic:
    """What clients did and got."""

    random: random.Random
    prompts: tuple[str, ...] = SCRIPTED
    results: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    num_kills: int = 0


class ServerProcess:
    """The server, asked through its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lock = asyncio.Lock()

    @classmethod
    async def start(cls, folder: Path, model: Path | None) -> tuple[ServerProcess, str]:
        """Start it; return it and its address."""
        options = ["--slots", str(NUM_SLOTS)]
        if model is None:
            config = {"FAKE_ENGINE": json.dumps({"num_slots": NUM_SLOTS})}
            options += ["--engine-bin", str(write_executable(folder))]
        else:
            config = {"COLI_KV_SLOTS": str(NUM_SLOTS)}
        options += ["--environment", json.dumps(config)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HERE / "longrun_server.py"), str(model or folder), *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["port"]
        return cls(process), f"http://127.0.0.1:{port}"

    async def ask(self, question: str = "figures") -> dict[str, Any]:
        """Return its answer."""
        async with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(question.encode() + b"\n")
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
            return answer

    async def stop(self) -> int:
        """End it; return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()


def body_of(path: str, traffic: Traffic) -> dict[str, Any]:
    """Return a random request for one of the dialects."""
    pick = traffic.random
    text = f"{pick.choice(traffic.prompts)} {pick.randrange(1000)}"
    body: dict[str, Any] = {"model": "long", "stream": pick.random() < 0.6}
    if path == "/v1/responses":
        return body | {"input": text, "max_output_tokens": pick.choice((16, 64))}
    body |= {"messages": [{"role": "user", "content": text}], "max_tokens": pick.choice((16, 64))}
    if path == "/v1/chat/completions" and pick.random() < 0.2:
        body["n"] = 2
    return body


async def client(base_url: str, traffic: Traffic, until: float) -> None:
    """Send requests until a moment; each on a connection that may be new."""
    pick = traffic.random
    while time.monotonic() < until:
        async with httpx.AsyncClient(base_url=base_url, timeout=60, trust_env=False) as http:
            for _ in range(pick.randrange(1, 20)):
                if time.monotonic() >= until:
                    break
                await one_request(http, traffic)


async def one_request(http: httpx.AsyncClient, traffic: Traffic) -> None:
    """Send one request, read all of its answer, a part, or nothing."""
    pick, path = traffic.random, traffic.random.choice(KINDS)
    body = body_of(path, traffic)
    patience = pick.random() * 0.3 if pick.random() < 0.25 else 60.0
    try:
        async with asyncio.timeout(patience):
            async with http.stream("POST", path, json=body) as response:
                data = await response.aread()
    except TimeoutError:
        traffic.results["left"] += 1
        if patience == 60.0:
            traffic.faults.append(f"no answer in a minute: {path} {body}")
        return
    except httpx.HTTPError as error:
        traffic.results[type(error).__name__] += 1
        traffic.faults.append(f"{path} {body}: {error!r}")
        return
    kind = "streamed" if body["stream"] and response.status_code == 200 else "whole"
    traffic.results[f"{response.status_code} {kind}"] += 1
    check_answer(traffic, path, body, response, data)
    if response.status_code in {429, 503}:
        await asyncio.sleep(0.05 * pick.random())


def check_answer(
    traffic: Traffic, path: str, body: dict[str, Any], response: httpx.Response, data: bytes
) -> None:
    """Note what is wrong with a complete answer."""
    status = response.status_code
    if status >= 500 and b"error" not in data:
        traffic.faults.append(f"{path}: {status} {data[:200]!r}")
    if status == 500 and "-error" not in str(body) and "[[error" not in str(body):
        traffic.faults.append(f"{path} {str(body)[:300]}: nobody asked for {data[:200]!r}")
    if status == 503 and "retry-after" not in response.headers:
        traffic.faults.append(f"{path}: 503 without Retry-After")
    if not body["stream"] or status != 200:
        json.loads(data)
    elif not is_ended(path, data):
        traffic.faults.append(f"{path}: a stream without end: {data[-300:]!r}")


def is_ended(path: str, data: bytes) -> bool:
    """Return whether a stream says that it is complete, or why it is not."""
    last = data.rstrip().rpartition(b"\n\n")[2]
    ends = {
        "/v1/chat/completions": (b"[DONE]", b'"error"'),
        "/v1/messages": (b"message_stop", b"event: error"),
        "/v1/responses": (b"response.completed", b"response.incomplete", b"failed", b"error"),
    }
    return any(end in last for end in ends[path])


async def kill_engines(
    server: ServerProcess, traffic: Traffic, every_s: float, until: float
) -> None:
    """Kill the engine at random moments; never, if `every_s` is 0."""
    if not every_s:
        return
    while (wait := traffic.random.uniform(0.5, 1.5) * every_s) < until - time.monotonic():
        await asyncio.sleep(wait)
        figures = await server.ask()
        if figures["engine_state"] == "ready":
            os.kill(figures["engine_pid"], signal.SIGKILL)
            traffic.num_kills += 1


async def run(args: argparse.Namespace, folder: Path) -> bool:
    """Run it all and judge."""
    server, url = await ServerProcess.start(folder, args.model)
    prompts = SCRIPTED if args.model is None else REAL
    traffic = Traffic(random.Random(args.seed), prompts)
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        await one_request(http, Traffic(random.Random(0), prompts))  # everything exists from here
    await settled(server)
    before = await server.ask()
    start = time.monotonic()
    until = start + args.seconds
    samples: list[dict[str, Any]] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(args.clients):
            group.create_task(client(url, traffic, until))
        group.create_task(kill_engines(server, traffic, args.kill_every, until))
        group.create_task(watch(server, samples, start, until, args.trace_after))
    is_settled = await settled(server)
    after = await server.ask("trim")
    is_good = judge(traffic, after, samples, args.seconds)
    judge_slope("clients_mb", samples, args.seconds)
    if not args.kill_every:
        is_good &= judge_slope("engine_mb", samples, args.seconds)
    print(f"after giving free memory back {after['memory_mb']:.1f} MB, {after['objects']} objects")
    for name in ("tasks", "descriptors"):
        print(f"{name} {before[name]} → {after[name]}")
        is_good &= after[name] <= before[name]
    if after["tasks"] > before["tasks"]:
        print("\n".join(after["task_names"]))
    if not is_settled:
        print("FAULT: connections or requests are left")
    if args.trace_after is not None:
        print("\n".join((await server.ask("trace"))["growth"]))
    code = await server.stop()
    print(f"the server ended with {code}")
    return is_good and is_settled and code == 0


async def watch(
    server: ServerProcess,
    samples: list[dict[str, Any]],
    start: float,
    until: float,
    trace_after: float | None,
) -> None:
    """Note the memory every two seconds, print a line every ten."""
    while (now := time.monotonic()) < until:
        if trace_after is not None and now - start >= trace_after:
            trace_after = None
            await server.ask("trace")
        figures = await server.ask()
        mine = resident_mb(os.getpid())  # for comparison: what clients cost is not the server's
        samples.append(figures | {"time": now - start, "clients_mb": mine})
        if len(samples) % 5 == 1:
            names = ("memory_mb", "engine_mb", "descriptors", "tasks", "objects", "connections")
            shown = [f"{name} {figures[name]:.5g}" for name in names]
            shown += [f"{name} {count}" for name, count in figures["admission"].items()]
            print(f"{now - start:6.0f} s ", *shown, flush=True)
        await asyncio.sleep(2)


async def settled(server: ServerProcess) -> bool:
    """Wait until nobody is connected and nothing runs."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(35):
            figures = await server.ask()
            while figures["connections"] or figures["active"] or figures["queued"]:
                await asyncio.sleep(0.2)
                figures = await server.ask()
            await asyncio.sleep(0.5)
            return True
    return False


def judge(
    traffic: Traffic, after: dict[str, Any], samples: list[dict[str, Any]], seconds: float
) -> bool:
    """Print the result; return whether all is well."""
    admission = after["admission"]
    ended = admission["completed"] + admission["failed"] + admission["aborted"]
    print("answers:", dict(sorted(traffic.results.items())), "engines killed:", traffic.num_kills)
    print(f"admission: {admission}; admitted - ended = {admission['admitted'] - ended}")
    for fault, count in Counter(traffic.faults).most_common(10):
        print(f"FAULT ({count}):", fault[:600])
    is_flat = judge_slope("memory_mb", samples, seconds)
    return admission["admitted"] == ended and not traffic.faults and is_flat


def judge_slope(name: str, samples: list[dict[str, Any]], seconds: float) -> bool:
    """Print how a memory grew; return whether that is little."""
    late = [sample for sample in samples if sample["time"] > seconds / 5 and sample[name]]
    times, sizes = np.array([(sample["time"], sample[name]) for sample in late]).T
    slope = 3600 * np.polyfit(times, sizes, 1)[0]
    print(
        f"{name}: {sizes[0]:.1f} → {sizes[-1]:.1f}, slope {slope:+.1f} MB per hour"
        f" over {len(late)} samples"
    )
    return seconds < 600 or slope <= MAX_MB_PER_HOUR  # short runs say little


def main() -> int:
    """Run for the time asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--model", type=Path, help="for our engine instead of the scripted one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace-after", type=float, metavar="SECONDS", help="what grows from then")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(run(args, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
