"""What saving conversations costs, and what a start gains by them.

    python benchmarks/saved_conversations.py [--tokens 2048] [--directory DIR] [--model MODEL]

First the rows of a conversation of GLM-5.2 (78 layers of latents, 20 of them with index keys):
copying them out of the cache, their checksums, saving them to DIR, one token more, reading them
back (out of the page cache, so what is measured is checking and placing them).

With MODEL also an engine of two slots: one decodes, while in the other a turn of half of its
context ends and is saved. How long the steps of the first take, with and without saving, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_engine.kernels import KvCache, KvReader, LayerLayout
from colibri_engine.kv_files.conversation_file import ConversationFile
from colibri_engine.kv_files.identity import Identity
from colibri_engine.kv_files.layout import RowShape, put_rows, rows_in, running_checksums
from colibri_engine.kv_files.writer import ConversationWriter
from colibri_protocol.messages import Finished, RequestOptions, SubmitExtended

IDENTITY = Identity("bench", "", "", "default", None, "", "")


class Bounds:
    """What a conversation must fit into."""

    vocab_size = 1 << 30
    context_length = 1 << 20


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--model", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for dtype in ("f32", "bf16"):
            measure_rows(arguments.tokens, Path(directory) / dtype, dtype)
        if arguments.model is not None:
            measure_steps(arguments.model, Path(directory))


def measure_rows(num_tokens: int, path: Path, dtype: str) -> None:
    """Print the rates of one conversation of GLM-5.2."""
    layouts = [LayerLayout(latent_dim=576, index_dim=128 * (i % 4 == 2)) for i in range(78)]
    cache = KvCache(layouts, dtype)
    shape = RowShape.of(cache)
    draw = np.random.default_rng(0)
    for _ in range(num_tokens // 64):
        cache.append_rows(draw.standard_normal((64, shape.row_dim), np.float32))
    num_tokens = cache.length
    nbytes = num_tokens * shape.row_bytes
    print(f"{num_tokens} tokens of {shape.row_bytes} bytes ({dtype})")

    records = shape.records(64)
    reader = KvReader(cache)
    tell("copied out of the cache", records.nbytes, lambda: put_rows(reader, 0, records, shape))
    tell("checksums", records.nbytes, lambda: running_checksums(records, 0))
    file = ConversationFile(path, shape, IDENTITY, Bounds())
    writer = ConversationWriter([file])

    def save(reader: KvReader) -> None:
        writer.save(0, np.arange(reader.length, dtype=np.int32), reader)
        writer.flush()

    tell("saved", nbytes, lambda: save(reader), times=1)
    cache.append_rows(rows_in(records[:1], shape))
    started = time.perf_counter()
    save(KvReader(cache))
    print(f"  {'one token more':24}{1e3 * (time.perf_counter() - started):8.1f} ms")
    writer.close()

    def load() -> None:
        file = ConversationFile(path, shape, IDENTITY, Bounds())
        file.open()
        file.read_into(KvCache(layouts, dtype))
        file.close()

    tell("checked and placed", nbytes, load, times=3)


def tell(what: str, nbytes: int, run: Any, times: int = 20) -> None:  # noqa: ANN401
    """Print the median rate of something."""
    spans = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        spans.append(time.perf_counter() - started)
    print(f"  {what:24}{nbytes / statistics.median(spans) / 1e9:8.2f} GB/s")


def measure_steps(model: Path, directory: Path) -> None:
    """Print how long decode steps take beside a conversation that is being saved."""
    base = replace(
        read_config((), {"SNAP": str(model)}), num_slots=2, context_length=4096, kv_dir=directory
    )
    engines = {
        name: startup.load(replace(base, kv_save=saves)).engine
        for name, saves in (("off", False), ("on", True))
    }
    spans: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(6):
        for name, engine in engines.items():
            spans[name] += steps_beside_an_end(engine, turn)
    for name, found in spans.items():
        found.sort()
        middle, most = (1e3 * found[len(found) * share // 100] for share in (50, 99))
        longest = 1e3 * found[-1]
        steps = f"{len(found)} steps: median {middle:.2f} ms"
        print(f"  saving {name:4}{steps}, 99 % {most:.2f} ms, longest {longest:.2f} ms")
    engines["on"].close()


def steps_beside_an_end(engine: Any, turn: int) -> list[float]:  # noqa: ANN401
    """Return the times of steps after the end of a long turn in another slot."""
    ids = np.random.default_rng(turn).integers(1000, 9000, 2048).astype(np.int32)
    long = SubmitExtended(1, 0, RequestOptions(max_tokens=1, ignore_eos=True), ())
    short = SubmitExtended(2, 1, RequestOptions(max_tokens=60, ignore_eos=True), ())
    engine.submit(long, ids)
    engine.submit(short, ids[-32:].copy())
    spans, has_ended = [], False
    while not engine.is_idle:
        started = time.perf_counter()
        messages = engine.step()
        if has_ended:
            spans.append(time.perf_counter() - started)
        has_ended = has_ended or any(isinstance(m, Finished) and m.id == 1 for m in messages)
    return spans


if __name__ == "__main__":
    main()
