"""How soon `coli` answers: its version, its help, and the prompt of a chat on a running server.

Run as `python benchmarks/startup.py [--rounds 20] [--require]`. Every round starts each command
once, in turn, so that a busy moment of the machine hits all of them; medians count. `--require`
fails when one is above its bar. The chat talks to a server with the demo model, which is started
first; its time ends when the prompt stands on its terminal.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path

COLI = str(Path(sys.executable).with_name("coli"))
BARS = {"coli --version": 0.15, "coli --help": 0.35, "coli chat, attached": 0.5}
PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}".encode()  # what a line is typed behind
PATIENCE_S = 60.0


def timed_command(*arguments: str) -> float:
    """Return the seconds a command takes to its end."""
    began = time.perf_counter()
    subprocess.run([COLI, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def timed_prompt(url: str) -> float:
    """Return the seconds until a chat on a server shows its prompt."""
    began = time.perf_counter()
    terminal, other_end = pty.openpty()
    # Not in a session of its own: Linux may give those another share of the processor.
    chat = subprocess.Popen(
        [COLI, "chat", "--attach", url, "--no-log", "--no-history"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
    )
    os.close(other_end)
    shown = b""
    while PROMPT not in shown:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        if not ready:
            raise SystemExit(f"no prompt: {shown.decode(errors='replace')}")
        try:
            shown += os.read(terminal, 65536)
        except OSError as error:  # the chat ended
            raise SystemExit(f"no prompt: {shown.decode(errors='replace')}") from error
        if b"\x1b[6n" in shown:  # asked where the cursor is
            os.write(terminal, b"\x1b[1;1R")
            shown = shown.replace(b"\x1b[6n", b"")
    taken = time.perf_counter() - began
    chat.terminate()
    chat.wait()
    os.close(terminal)
    return taken


def started_server(model: str) -> tuple[subprocess.Popen[str], str]:
    """Return a server that is ready, and its address."""
    server = subprocess.Popen(
        [COLI, "serve", "--model", model, "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert server.stderr is not None
    url = None
    for line in server.stderr:
        found = re.search(r"listening on (http://[\d.:]+)", line)
        url = found[1] if found else url
        if "ready:" in line and url is not None:
            return server, url
    raise SystemExit("the server ended")


def main() -> int:
    """Measure and print all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    server, url = started_server(options.model)
    times: dict[str, list[float]] = {name: [] for name in BARS}
    try:
        for _ in range(options.rounds + 1):  # the first fills caches and does not count
            times["coli --version"].append(timed_command("--version"))
            times["coli --help"].append(timed_command("--help"))
            times["coli chat, attached"].append(timed_prompt(url))
    finally:
        server.terminate()
        server.communicate()
    worst = 0.0
    print(f"{'seconds':<22}{'median':>8}{'least':>8}{'most':>8}{'bar':>8}   of {options.rounds}")
    for name, bar in BARS.items():
        counted = times[name][1:]
        median = statistics.median(counted)
        worst = max(worst, median / bar)
        print(f"{name:<22}{median:8.3f}{min(counted):8.3f}{max(counted):8.3f}{bar:8.2f}")
    return int(options.require and worst > 1)


if __name__ == "__main__":
    sys.exit(main())
