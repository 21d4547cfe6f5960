"""What saved rows were computed with: rows of anything else would change answers.

Weights are looked at as far as that is cheap: name, size, time of change and samples of every file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.kv_files.layout import Unusable
from colibri_engine.loader.file_samples import samples_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from colibri_engine.kernels import KvCache, LayerLayout
    from colibri_engine.loader.base import Checkpoint

_DISTRIBUTION: Final = "colibri-cli"
# What differs -> what to say of the file; the first difference counts.
_DIFFERENCES: Final[dict[str, str]] = {
    "program": "it was written by version {} of the program",
    "config": "it belongs to a model of another configuration",
    "weights": "it was computed with other weights",
    "numerics": "it was computed with numerics {}",
    "experts_per_token": "it was computed with another number of experts per token",
    "layers": "its layers have other sizes",
    "kv_dtype": "its rows were kept as {}",
}
# What holds for a file that does not say it: older ones knew nothing else.
_UNTOLD: Final = {"kv_dtype": "f32"}


@dataclass(frozen=True, slots=True)
class Identity:
    """What rows depend on.

    Args:
        model: Name for a reader; not compared.
        config: Digest of the configuration.
        weights: Digest of what is looked at of the weights.
        numerics: "default", "fast" or "float".
        experts_per_token: Another number of experts than the model's own, or None.
        layers: Digest of what each layer keeps.
        program: Version of this program: bits are promised within one.
        kv_dtype: What rows were kept as: "f32" or "bf16".
    """

    model: str
    config: str
    weights: str
    numerics: str
    experts_per_token: int | None
    layers: str
    program: str
    kv_dtype: str = "f32"

    def as_dict(self) -> dict[str, object]:
        """Return the fields, for a header."""
        return asdict(self)

    def check(self, found: Mapping[str, object]) -> None:
        """Compare with what a header says.

        Raises:
            Unusable: Saying what differs.
        """
        for name, words in _DIFFERENCES.items():
            its_own = found.get(name, _UNTOLD.get(name))
            if its_own != getattr(self, name):
                raise Unusable(words.format(its_own))


def identify(
    checkpoint: Checkpoint, cache: KvCache, numerics: str, experts_per_token: int | None
) -> Identity:
    """Return what rows of a model depend on.

    Args:
        checkpoint: Its files.
        cache: An empty cache of it.
        numerics: How it computes.
        experts_per_token: Another number of experts than its own, or None.

    Raises:
        OSError: A weight file cannot be read.
    """
    return Identity(
        model=checkpoint.path.name,
        config=config_digest(checkpoint.config),
        weights=weights_digest(checkpoint.weight_files()),
        numerics=numerics,
        experts_per_token=experts_per_token,
        layers=layers_digest(cache.layouts),
        program=program_version(),
        kv_dtype=cache.dtype,
    )


def program_version() -> str:
    """Return the version of this program."""
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def config_digest(config: Mapping[str, Any]) -> str:
    """Return a digest of a configuration, whatever the order of its keys."""
    return _digest(json.dumps(config, sort_keys=True, default=str).encode())


def layers_digest(layouts: Sequence[LayerLayout]) -> str:
    """Return a digest of what each layer keeps."""
    sizes = [
        (each.num_kv_heads, each.head_dim, each.latent_dim, each.index_dim, each.state_dim)
        for each in layouts
    ]
    return _digest(json.dumps(sizes).encode())


def weights_digest(files: Sequence[Path]) -> str:
    """Return a digest of weight files: names, sizes, times, first bytes, samples.

    Raises:
        OSError: One cannot be read.
    """
    return samples_digest(files, lambda each: f"{each.path.name} {each.size} {each.mtime_ns}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
