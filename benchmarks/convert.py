"""How fast `coli convert` reads a bf16 checkpoint, and how much memory that takes.

    python benchmarks/convert.py                     1.6 GB of random weights, 2 threads
    python benchmarks/convert.py --layers 8 --shards 1 --threads 4 --layout pairs

A checkpoint of the architecture glm4_moe is written first (not timed). Its weights are random
bfloat16 values, so nothing is easier than with real ones. The time is that of the whole job:
start, reading, rounding, writing, reading back and forcing to disk; the source is in the page
cache or not as the system pleases (`--cold` evicts it first, where the system can).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from colibri_engine.loader.shard_writer import ShardWriter, TensorSpec  # noqa: E402
from tests.fakes.tiny_checkpoint import tiny_config, tokenizer_json  # noqa: E402

_PIECE = 1 << 24  # values drawn at once


def names_and_shapes(config: dict[str, int], layers: int) -> dict[str, tuple[int, ...]]:
    """Return all tensors of the checkpoint."""
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    head, heads, groups = (
        config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"],
    )  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (heads * head, hidden),
            f"{prefix}.self_attn.k_proj.weight": (groups * head, hidden),
            f"{prefix}.self_attn.v_proj.weight": (groups * head, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, heads * head),
            f"{prefix}.mlp.gate.weight": (config["n_routed_experts"], hidden),
            f"{prefix}.mlp.gate.e_score_correction_bias": (config["n_routed_experts"],),
        }
        blocks = [f"{prefix}.mlp.shared_experts"]
        blocks += [f"{prefix}.mlp.experts.{e}" for e in range(config["n_routed_experts"])]
        for block in blocks:
            shapes |= {
                f"{block}.gate_proj.weight": (width, hidden),
                f"{block}.up_proj.weight": (width, hidden),
                f"{block}.down_proj.weight": (hidden, width),
            }
    return shapes


def write_source(directory: Path, arguments: argparse.Namespace) -> int:
    """Write the checkpoint and return the bytes of its weight files."""
    config = tiny_config(
        "glm4_moe",
        hidden_size=arguments.hidden,
        moe_intermediate_size=arguments.width,
        num_hidden_layers=arguments.layers,
        n_routed_experts=arguments.experts,
        num_attention_heads=arguments.hidden // 128,
        num_key_value_heads=4,
        head_dim=128,
        vocab_size=arguments.vocab,
        first_k_dense_replace=0,
        attention_bias=False,
        use_qk_norm=False,
    )
    shapes = names_and_shapes(config, arguments.layers)
    names = list(shapes)
    rng = np.random.default_rng(0)
    normal = (rng.standard_normal(_PIECE).astype(np.float32) / 50).view(np.uint32) >> 16
    drawn = normal.astype(np.uint16)
    total = 0
    for shard in range(arguments.shards):
        part = names[shard :: arguments.shards]
        name = f"model-{shard + 1:05d}-of-{arguments.shards:05d}.safetensors"
        with ShardWriter(
            directory / name, [TensorSpec(n, "BF16", shapes[n]) for n in part], {}
        ) as writer:
            for tensor in part:
                left = int(np.prod(shapes[tensor]))
                while left:
                    count = min(left, _PIECE)
                    writer.write(tensor, np.roll(drawn, left)[:count].view(np.uint8))
                    left -= count
            total += writer.finish().nbytes
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    return total


def evict(directory: Path) -> None:
    """Ask the system to forget the files, so that they are read from the disk."""
    if not hasattr(os, "posix_fadvise"):
        sys.exit("this system cannot evict files from its cache: leave --cold out")
    for path in directory.glob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def convert(source: Path, out: Path, arguments: argparse.Namespace) -> tuple[float, float, int]:
    """Run the job; return its seconds, those of all cores, and its largest size in memory."""
    argv = [
        *(sys.executable, "-m", "colibri_engine.jobs", "convert"),
        *("--source", str(source), "--out", str(out), "--layout", arguments.layout),
        *("--threads", str(arguments.threads)),
    ]
    start = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the job ended with code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    seconds = time.perf_counter() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit


def main() -> None:
    """Write a source, convert it, print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--layout", choices=["stream", "pairs"], default="stream")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to work; else the system's")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        source = Path(name) / "source"
        source.mkdir()
        total = write_source(source, arguments)
        for run in range(arguments.runs):
            if arguments.cold:
                evict(source)
            out = Path(name) / f"out-{run}"
            seconds, busy, resident = convert(source, out, arguments)
            size = sum(path.stat().st_size for path in out.iterdir())
            print(
                f"{total / 1e9:.2f} GB -> {size / 1e9:.2f} GB in {seconds:.1f} s: "
                f"{total / 1e6 / seconds:.0f} MB/s of bf16 ({total / 1e6 / busy:.0f} MB per second "
                f"of one core), {resident / 1e9:.2f} GB of memory"
            )


if __name__ == "__main__":
    main()
