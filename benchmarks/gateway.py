"""What the gateway costs: time to the first byte, streamed pieces per second, idle connections.

    python benchmarks/gateway.py [--peer PYTHON-WITH-FASTAPI-AND-UVICORN] [--seconds 5]

Each server is a process pinned to the first core; client (and scripted engine) run on the last.
`source` has its answers made in the process of the server, so that everything measured is the
gateway's; `engine` gets them from the scripted engine over pipes; the peer is uvicorn + FastAPI
with the same source. Pieces come in lockstep: one for each of the connections, then the next.
The time to the first byte is that of the first event of a streamed answer to a request on an open
connection; the scripted engine's own, asked without a gateway, is printed to be taken off, and is
for the bar. Everything stays on loopback. Exits 1 when a bar is missed by `source` or `engine`.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

from colibri_protocol.frames import encode
from colibri_protocol.messages import RequestOptions, Segment, SegmentKind, SubmitExtended

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_CORE: Final = min(os.sched_getaffinity(0))
LAST_CORE: Final = max(os.sched_getaffinity(0))
HERE: Final = Path(__file__).resolve().parent
MAX_FIRST_BYTE_MS: Final = 2.0
MIN_PIECES: Final = 20_000
MAX_IDLE_MB: Final = 100.0
NUM_STREAMS: Final = 64
NUM_IDLE: Final = 1000
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(command: list[str]) -> Iterator[tuple[int, int]]:
    """Run a server on the first core; yield its process id and its port."""
    command = ["taskset", "-c", str(FIRST_CORE), *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def request(num_pieces: int) -> bytes:
    """Return a request for a streamed answer."""
    body = json.dumps(
        {
            "model": "benchmark",
            "messages": [{"role": "user", "content": f"[[tokens {num_pieces}]]"}],
            "stream": True,
            "max_tokens": num_pieces,
        }
    ).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body


def first_byte_ms(port: int, count: int) -> list[float]:
    """Return the time from a request to its first event, again and again on one connection."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count + 20):
            start = time.perf_counter()
            client.sendall(request(2))
            data, taken = b"", 0.0
            while not data.endswith(b"0\r\n\r\n"):
                received = client.recv(65536)
                assert received, data
                data += received
                if not taken and b"data: {" in data:
                    taken = time.perf_counter() - start
            assert data.startswith(b"HTTP/1.1 200"), data
            times.append(1e3 * taken)
    return times[20:]


def engine_alone_ms(count: int) -> list[float]:
    """Return the time from a request to the first piece of the scripted engine without gateway."""
    command = [sys.executable, str(HERE / "gateway_server.py"), "--as-engine"]
    environment = {**os.environ, "COLI_CAPS": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    segment = Segment(SegmentKind.TEXT, "[[tokens 2]]")
    times, data = [], b""
    while b"\nMODEL" not in data:
        data += os.read(process.stdout.fileno(), 65536)
    for number in range(1, count + 21):
        submit = SubmitExtended(number, -1, RequestOptions(max_tokens=2), (segment,))
        start = time.perf_counter()
        process.stdin.write(encode(submit))
        process.stdin.flush()
        data, taken = b"", 0.0
        while b"DONE" not in data:
            data += os.read(process.stdout.fileno(), 65536)
            if not taken and b"DATA" in data:
                taken = time.perf_counter() - start
        times.append(1e3 * taken)
    process.stdin.close()
    process.wait(10)
    return times[20:]


def pieces_per_second(pid: int, port: int, seconds: float) -> tuple[float, float]:
    """Return pieces per second over all connections, and per second of processor time."""
    selector = selectors.DefaultSelector()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(NUM_STREAMS)]
    for client in clients:
        client.sendall(request(1_000_000))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)

    def count_until(end: float) -> int:
        num = 0
        while time.perf_counter() < end:
            for key, _ in selector.select(0.1):
                data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                assert data, "a stream ended"
                num += data.count(b'"content"')
        return num

    count_until(time.perf_counter() + 1.0)
    start, used = time.perf_counter(), cpu_seconds(pid)
    num = count_until(start + seconds)
    wall, used = time.perf_counter() - start, cpu_seconds(pid) - used
    for client in clients:
        client.close()
    time.sleep(0.5)
    return num / wall, num / used


def idle_memory(pid: int, port: int) -> tuple[float, float]:
    """Return the MB of a server with idle connections, and by how much it grew for them."""
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    before = resident_mb(pid)
    clients = []
    for _ in range(NUM_IDLE):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(ask)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        clients.append(client)
    after = resident_mb(pid)
    for client in clients:
        client.close()
    return after, after - before


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


def measure(name: str, command: list[str], seconds: float, own_ms: float = 0.0) -> bool:
    """Measure one server, print the figures, return whether they reach the bars.

    Args:
        name: What it is called.
        command: Starts it.
        seconds: How long it streams.
        own_ms: What of the time to the first byte is not the server's.
    """
    with running(command) as (pid, port):
        times = first_byte_ms(port, 300)
        rate, rate_of_core = pieces_per_second(pid, port, seconds)
    with running(command) as (pid, port):
        total, grown = idle_memory(pid, port)
    print(
        f"{name:22} first byte: median {median(times):5.2f} ms, "
        f"p99 {sorted(times)[int(0.99 * len(times))]:5.2f} ms   "
        f"pieces/s: {rate:7,.0f} ({rate_of_core:7,.0f} per core second)   "
        f"{NUM_IDLE} idle: {total:5.1f} MB, {grown:4.1f} MB of it theirs",
        flush=True,
    )
    return (
        median(times) - own_ms <= MAX_FIRST_BYTE_MS and rate >= MIN_PIECES and total < MAX_IDLE_MB
    )


def main() -> int:
    """Measure all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with fastapi and uvicorn")
    parser.add_argument("--seconds", type=float, default=5.0, help="of streaming (default 5)")
    args = parser.parse_args()
    own = [sys.executable, str(HERE / "gateway_server.py")]
    is_good = True
    os.sched_setaffinity(0, {LAST_CORE})
    peer = [args.peer, str(HERE / "gateway_peer.py")] if args.peer else None
    engine_ms = median(engine_alone_ms(300))
    print(f"{'scripted engine alone':22} first byte: median {engine_ms:5.2f} ms", flush=True)
    for kind, taken in (("source", 0.0), ("engine", engine_ms)):
        is_good &= measure(f"coli, {kind}", [*own, kind], args.seconds, taken)
    if peer is not None:
        measure("uvicorn + FastAPI", peer, args.seconds)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
