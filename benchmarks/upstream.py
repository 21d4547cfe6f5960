"""What `coli serve --upstream` adds: time to the first byte and tokens per second of many streams.

Three processes on one machine: a scripted upstream that sends a piece every so often to each
stream, the gateway before it, and this client. The same requests go straight to the upstream and
through the gateway, in turns: alone, beside streams that run, and many in one moment, which wait
for each other. `python benchmarks/upstream.py [--streams 64] [--pace-ms 40]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "engine"), str(ROOT / "plugins")]
ROUNDS = 3


@dataclass(frozen=True)
class Seen:
    """One stream: seconds to its first piece and from that to its last, and how many came."""

    first_s: float
    rest_s: float
    num_pieces: int


async def stream(port: int, num_tokens: int) -> Seen:
    """Ask for a stream and read it to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {
        "messages": [{"role": "user", "content": f"tokens {num_tokens}"}],
        "stream": True,
        "max_tokens": num_tokens,
    }
    body = json.dumps(asked).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    began = time.perf_counter()
    first = last = 0.0
    num_pieces = 0
    rest = b""
    while piece := await reader.read(65536):
        data = rest + piece
        count = data.count(b'"content":" word"') + data.count(b'"content": " word"')
        if count:
            last = time.perf_counter()
            first = first or last
            num_pieces += count
        if b"[DONE]" in data:
            break  # the scripted upstream keeps its connections
        rest = data[-16:]  # shorter than a piece: nothing is counted twice
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    if num_pieces != num_tokens:
        raise SystemExit(f"{num_pieces} pieces came instead of {num_tokens}")
    return Seen(first - began, last - first, num_pieces)


async def one_after_the_other(port: int, count: int) -> list[float]:
    """Return times to the first byte of lone requests, milliseconds."""
    return [(await stream(port, 1)).first_s * 1000 for _ in range(count)]


async def beside(port: int, num_streams: int, num_tokens: int, count: int) -> list[float]:
    """Return times to the first byte of lone requests while streams run, milliseconds."""
    running = [asyncio.create_task(stream(port, num_tokens)) for _ in range(num_streams)]
    await asyncio.sleep(0.5)  # they have all begun
    found = await one_after_the_other(port, count)
    await asyncio.gather(*running)
    return found


def processor_s(pid: int) -> float:
    """Return the processor time a process has taken; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def together(port: int, num_streams: int, num_tokens: int) -> tuple[list[float], float]:
    """Return times to first bytes, milliseconds, and tokens per second of streams at once."""
    began = time.perf_counter()
    seen = await asyncio.gather(*(stream(port, num_tokens) for _ in range(num_streams)))
    elapsed = time.perf_counter() - began
    firsts = [one.first_s * 1000 for one in seen]
    return firsts, sum(one.num_pieces for one in seen) / elapsed


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def process(port: int, *argv: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Run a server until the block ends; it is awaited at its port."""
    paths = os.pathsep.join(sys.path[:3])
    environment = {**os.environ, "PYTHONPATH": paths, "COLI_ACCESS_LOG": "0"}
    started = await asyncio.create_subprocess_exec(*argv, env=environment)
    try:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                if b" 200 " in await reader.readline():
                    writer.close()
                    break
            await asyncio.sleep(0.1)
        yield started.pid
    finally:
        started.terminate()
        await started.wait()


async def compare(direct: int, through: int, num_streams: int, num_tokens: int, pid: int) -> None:
    """Measure both in turns and print what the gateway adds."""
    await together(through, num_streams, 2)  # connections and code are warm
    await together(direct, num_streams, 2)
    alone: dict[str, list[float]] = {"direct": [], "through": []}
    joined: dict[str, list[float]] = {"direct": [], "through": []}
    spent_s = 0.0
    firsts: dict[str, list[float]] = {"direct": [], "through": []}
    rates: dict[str, list[float]] = {"direct": [], "through": []}
    for _ in range(ROUNDS):
        for name, port in (("direct", direct), ("through", through)):
            alone[name] += await one_after_the_other(port, 50)
            joined[name] += await beside(port, num_streams - 1, num_tokens, 10)
            before = processor_s(pid)
            first, rate = await together(port, num_streams, num_tokens)
            spent_s += processor_s(pid) - before if port == through else 0.0
            firsts[name] += first
            rates[name].append(rate)
    labels = ("alone", f"beside {num_streams - 1}", f"{num_streams} at once")
    for label, times in zip(labels, (alone, joined, firsts), strict=True):
        medians = {name: statistics.median(values) for name, values in times.items()}
        added = medians["through"] - medians["direct"]
        print(
            f"  first byte, {label:11}: direct {medians['direct']:7.2f} ms"
            f"  through {medians['through']:7.2f} ms  added {added:5.2f} ms"
        )
    best = {name: statistics.median(values) for name, values in rates.items()}
    lost = 100 * (1 - best["through"] / best["direct"])
    print(
        f"  tokens/s, {num_streams} streams   : direct {best['direct']:7.0f}"
        f"     through {best['through']:7.0f}     lost {lost:5.2f} %"
    )
    per_token = spent_s / (ROUNDS * num_streams * num_tokens) * 1e6
    print(f"  processor time of the gateway: {per_token:.0f} us per token", flush=True)


async def main() -> None:
    """Run the comparison at each pace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200, help="of each stream")
    parser.add_argument("--pace-ms", default="40,20", help="between two pieces of a stream")
    options = parser.parse_args()
    for pace_ms in (float(word) for word in options.pace_ms.split(",")):
        upstream, front = free_port(), free_port()
        print(f"{options.streams} streams of {options.tokens} pieces, one every {pace_ms:g} ms")
        script = str(ROOT / "tests" / "fakes" / "scripted_upstream.py")
        fake = (sys.executable, script, "serve", "m", "--port", str(upstream))
        coli = (sys.executable, "-m", "colibri_cli", "serve", "--port", str(front), "--plain")
        pace = ("--served-model-name", "m", "--pace-ms", str(pace_ms))
        behind = ("--upstream", f"http://127.0.0.1:{upstream}", "--quiet")
        async with process(upstream, *fake, *pace), process(front, *coli, *behind) as pid:
            await compare(upstream, front, options.streams, options.tokens, pid)


if __name__ == "__main__":
    asyncio.run(main())
