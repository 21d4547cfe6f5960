"""How much each way of meeting integer weights changes the answers, against f32 activations.

    python benchmarks/quality.py MODEL.gguf [MODEL.gguf ...]

Runs the same English text (the language reference that ships with CPython) through the same
weights with `--numerics float`, `default` and `fast`, and prints the mean KL divergence in nats,
the share of equal argmaxes and the perplexity. Exits 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING

import numpy as np

from colibri_engine import kernels
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

    from colibri_engine.models.base import Model

WINDOW = 512
MODES = ("default", "fast")


@dataclass
class Sums:
    """What one mode has added up over the text."""

    kl: float = 0.0
    agreements: int = 0
    log_loss: float = 0.0


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return (N, V) log-probabilities in double precision."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return x


def window_log_probs(model: Model, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """Return (N, V) log-probabilities of one window from an empty cache."""
    batch = kernels.Batch()
    batch.set([(model.make_cache(), 0, len(ids))])
    return log_softmax(model.forward(ids, batch, list(range(len(ids)))))


def compare(path: Path, num_tokens: int) -> tuple[dict[str, Sums], int]:
    """Return the sums of every mode, "float" included, and the number of positions."""
    with closing(open_checkpoint(path)) as checkpoint:
        tokenizer = Tokenizer(checkpoint.tokenizer)
        models = {m: load_model(checkpoint, numerics=m) for m in ("float", *MODES)}
    text = "\n\n".join(topics[name] for name in sorted(topics))
    ids = np.array(tokenizer.encode_text(text[: 8 * num_tokens])[:num_tokens], np.int32)
    sums = {mode: Sums() for mode in models}
    for start in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = ids[start : start + WINDOW]
        results = {mode: window_log_probs(model, window) for mode, model in models.items()}
        reference = results["float"]
        for mode, log_probs in results.items():
            total = sums[mode]
            total.kl += float((np.exp(reference) * (reference - log_probs)).sum())
            total.agreements += int((reference.argmax(-1) == log_probs.argmax(-1)).sum())
            total.log_loss -= float(log_probs[np.arange(WINDOW - 1), window[1:]].sum())
    return sums, len(ids) // WINDOW * WINDOW


def report(path: Path, num_tokens: int) -> bool:
    """Print one model's figures; return whether every gate holds."""
    sums, positions = compare(path, num_tokens)
    scored = positions - positions // WINDOW
    perplexity = {mode: float(np.exp(s.log_loss / scored)) for mode, s in sums.items()}
    print(f"{path.name}: {positions} positions, perplexity {perplexity['float']:.4f} in float")
    passed = True
    for mode in MODES:
        kl = sums[mode].kl / positions
        agreement = sums[mode].agreements / positions
        change = perplexity[mode] / perplexity["float"] - 1
        if mode == "default":
            holds = kl <= 1e-5 and agreement >= 0.999
        else:
            holds = kl <= 5e-3 and abs(change) <= 0.01
        passed &= holds
        print(
            f"  {mode:8} KL {kl:.2e} nats  argmax equal {100 * agreement:.3f} %  "
            f"perplexity {100 * change:+.3f} %  {'ok' if holds else 'MISSED'}"
        )
    return passed


def main() -> int:
    """Check every model named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="GGUF files or model directories")
    parser.add_argument("--tokens", type=int, default=3072, help="tokens of text (default 3072)")
    args = parser.parse_args()
    kernels.set_num_threads(os.cpu_count() or 1)
    passed = [report(path, args.tokens) for path in args.models]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
