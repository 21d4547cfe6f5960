"""The mixture of DeepSeek-V3 and GLM: sigmoid scores, a bias that only selects, a shared expert.

A row chooses the experts with the largest sigmoid(z) + bias, of the best groups where experts come
in groups; their weights are the sigmoids alone, normalised and scaled.
Source: DeepSeek-V3, arXiv 2412.19437, section 2.1.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Router
from colibri_engine.layers.mixture import Mixture

if TYPE_CHECKING:
    from colibri_engine.layers.weights import WeightReader


@dataclass(frozen=True, slots=True)
class NoauxShape:
    """Sizes and rule of such a mixture.

    Args:
        num_experts: Routed experts.
        num_experts_per_token: Chosen per row.
        num_shared_experts: Experts every row uses, held as one of that many times the width.
        width: Inner width of a routed expert.
        normalize: Whether the weights of a row are divided by their sum.
        scale: What they are multiplied by.
        num_groups: Groups of experts.
        kept_groups: Groups a row chooses from.

    Raises:
        UnsupportedModel: they do not fit each other.
    """

    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    width: int
    normalize: bool
    scale: float
    num_groups: int
    kept_groups: int

    def __post_init__(self) -> None:
        """Check that the choice is possible."""
        kept = self.num_experts // self.num_groups * self.kept_groups
        if (
            self.num_experts % self.num_groups
            or self.kept_groups > self.num_groups
            or self.num_experts_per_token > kept
        ):
            raise UnsupportedModel(
                f"{self.num_experts_per_token} experts per token cannot be chosen from "
                f"{self.num_experts} in {self.num_groups} groups of which "
                f"{self.kept_groups} are kept",
                hint="the configuration is damaged",
            )


def read_noaux_mixture(
    weights: WeightReader, prefix: str, hidden_size: int, shape: NoauxShape
) -> Mixture:
    """Read `prefix.gate`, `prefix.experts` and `prefix.shared_experts`."""
    router = Router(
        shape.num_experts_per_token,
        scoring="sigmoid",
        normalize=shape.normalize,
        scale=shape.scale,
        bias=weights.values(f"{prefix}.gate.e_score_correction_bias", shape.num_experts),
        num_groups=shape.num_groups,
        kept_groups=shape.kept_groups,
    )
    shared = None
    if shape.num_shared_experts:
        shared = weights.expert(
            f"{prefix}.shared_experts", hidden_size, shape.width * shape.num_shared_experts
        )
    return Mixture(
        weights.linear([f"{prefix}.gate"], [shape.num_experts], hidden_size),
        router,
        weights.experts(f"{prefix}.experts", shape.num_experts, hidden_size, shape.width),
        shared,
    )
