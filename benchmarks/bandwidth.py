"""Share of the memory's read bandwidth that decoding reaches.

    python benchmarks/bandwidth.py MODEL.gguf [--require 0.75] [--numerics default] [--threads N]

Reads of 2 GB by as many threads as decode (`read_bandwidth.cpp`, built on the fly) alternate with
runs of decoding, all within a minute. The bandwidth is the best read. Decoding reads every weight
once per token, so its rate is tokens/s times the bytes of packed weights; the median run counts.
The model must be much larger than the caches: `make_models.py` writes one of 1 GB. Exits 1 below
the required share.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speeds import WARM_UP_TOKENS, EngineOptions, OurModel, facts_text, machine_facts
from colibri_engine import kernels

READ_BYTES = 2_000_000_000
ROUNDS = 8
TOKENS = 48


class Reader:
    """A process that reads 2 GB of its memory whenever it is asked.

    Args:
        directory: Where the program is built.
        threads: Threads that read.
    """

    def __init__(self, directory: Path, threads: int) -> None:
        program = directory / "read_bandwidth"
        source = Path(__file__).with_name("read_bandwidth.cpp")
        compiler = os.environ.get("CXX", "g++")
        options = ["-std=c++17", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *options, source, "-o", program], check=True)
        self._process = subprocess.Popen(
            [program, str(threads), str(READ_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> float:
        """Return GB/s of one read."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def show(reads: list[float], decodes: list[float], bytes_per_token: int) -> float:
    """Print the figures; return the share."""
    rate = median(decodes) * bytes_per_token / 1e9
    share = rate / max(reads)
    print(facts_text(machine_facts() | {"isa": kernels.active_isa()}))
    print(f"read    {max(reads):.1f} GB/s, the best of {' '.join(f'{r:.1f}' for r in reads)}")
    print(f"decode  {median(decodes):.2f} tokens/s of {' '.join(f'{d:.1f}' for d in decodes)}")
    print(f"        {bytes_per_token / 1e9:.4f} GB per token: {rate:.1f} GB/s")
    print(f"share   {100 * share:.1f} %")
    return share


def main() -> int:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--require", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--numerics", default="default", choices=("default", "fast", "float"))
    parser.add_argument("--threads", type=int, help="threads (default: coli's own choice)")
    args = parser.parse_args()
    model = OurModel(args.model, EngineOptions(args.numerics, None, args.threads))
    model.decode(WARM_UP_TOKENS)
    reads: list[float] = []
    decodes: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        reader = Reader(Path(directory), kernels.num_threads())
        for _ in range(ROUNDS):
            reads.append(reader.read())
            decodes.append(model.decode(TOKENS))
        reader.close()
    share = show(reads, decodes, model.bytes_per_token)
    if share < args.require:
        print(f"missed: {share:.3f} < {args.require}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
