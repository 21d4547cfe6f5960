"""Convert a checkpoint into a container; the job behind `coli convert`.

Besides `PROGRESS` it writes, each on a line of its own:

    PLAN {json}                              once, before anything is written
    FILE <place> <count> <done> <total> <name>
    NOTE <text>

With `--dry-run` it ends after the plan.

With `--arriving LIST` the source's weight files need not be there yet: the list describes them,
`--commit` names their values, and whoever started the job brings them into its directory:

    NEED <name>                              a file is wanted
    HAVE <name>, LOST <name> <reason>        the answers, on standard input
    DONE <name>                              it is not needed any more
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_engine.conversion.convert import Conversion
from colibri_engine.conversion.options import Bits, ConvertOptions, Layout, Precision
from colibri_engine.conversion.plan_summary import summarize
from colibri_engine.jobs.base import LineCarrier
from colibri_engine.loader.arriving_files import read_descriptions
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.machine import num_usable_cores

if TYPE_CHECKING:
    from colibri_engine.jobs.base import JobOutput
    from colibri_engine.loader.base import Checkpoint

_BITS: Final = (
    "ebits", "io-bits", "xbits", "gate-bits", "up-bits", "down-bits", "shared-bits", "o-bits",
    "kvb-bits", "attn-bits", "dmlp-bits", "mtp-bits",
)  # fmt: skip
_INTERVAL_S: Final = 0.1


def run(argv: list[str], output: JobOutput) -> None:
    """Read `--source`, write `--out`.

    Raises:
        BadChoice: the choices do not fit each other or the source.
        CheckpointError: the source is damaged.
        ConversionError: the result cannot be written.
    """
    arguments = _parser().parse_args(argv)
    options = _options(arguments)
    carrier = None
    checkpoint: Checkpoint
    if arguments.arriving is None:
        checkpoint = open_checkpoint(arguments.source)
    else:
        carrier = LineCarrier(output, sys.stdin)
        checkpoint = HfCheckpoint(
            arguments.source, read_descriptions(arguments.arriving, carrier.wait)
        )
    try:
        conversion = Conversion(checkpoint, arguments.out, options, carrier)
        summary = summarize(conversion.plan, options)
        output.say("PLAN", json.dumps(summary, ensure_ascii=False, separators=(",", ":")))
        if not arguments.dry_run:
            conversion.run(_Reporter(output), verify=arguments.verify)
    finally:
        checkpoint.close()


class _Reporter:
    """See `conversion.convert.Reporter`. A reader wants some lines per second, not thousands."""

    def __init__(self, output: JobOutput) -> None:
        self._output = output
        self._last = {"PROGRESS": -_INTERVAL_S, "FILE": -_INTERVAL_S}

    def progress(self, done: int, total: int) -> None:
        if done >= total or self._is_due("PROGRESS"):
            self._output.progress(done, total)

    def file_progress(self, name: str, place: tuple[int, int], done: int, total: int) -> None:
        if done >= total or self._is_due("FILE"):
            self._output.say("FILE", f"{place[0]} {place[1]} {done} {total} {name}")

    def _is_due(self, word: str) -> bool:
        now = time.monotonic()
        if now - self._last[word] < _INTERVAL_S:
            return False
        self._last[word] = now
        return True

    def note(self, text: str) -> None:
        self._output.say("NOTE", text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="convert")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arriving", type=Path)
    parser.add_argument("--commit")
    parser.add_argument("--layout", type=Layout, choices=list(Layout), default=Layout.STREAM)
    for name in _BITS:
        parser.add_argument(f"--{name}")
    parser.add_argument("--group-size", type=int)
    parser.add_argument("--no-mtp", action="store_true")
    parser.add_argument("--shard-bytes", type=int)
    parser.add_argument("--min-free-bytes", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--verify", action="store_true")
    return parser


def _options(arguments: argparse.Namespace) -> ConvertOptions:
    chosen = {
        name.replace("-", "_"): Bits.parse(name, text)
        for name in _BITS
        if (text := getattr(arguments, name.replace("-", "_"))) is not None
    }
    sizes = {
        name: value
        for name in ("shard_bytes", "min_free_bytes")
        if (value := getattr(arguments, name)) is not None
    }
    return ConvertOptions(
        layout=arguments.layout,
        precision=Precision(group_size=arguments.group_size, **chosen),
        with_mtp=not arguments.no_mtp,
        num_threads=arguments.threads or num_usable_cores(),
        commit=arguments.commit,
        **sizes,
    )
