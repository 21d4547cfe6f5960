"""What every model of mixtures tells in the same way of the choices its routers made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from colibri_engine.layers.mixture import Mixture


class _Layer(Protocol):
    """A decoder layer, as far as it matters here."""

    @property
    def mixture(self) -> Mixture | None:
        """Its mixture, if it has one."""


class _Sizes(Protocol):
    """Sizes of a model, as far as they matter here."""

    @property
    def num_experts(self) -> int:
        """Routed experts per mixture layer."""


Config = TypeVar("Config", bound=_Sizes)
Layer = TypeVar("Layer", bound=_Layer)


class CountedMixtures(Generic[Config, Layer]):
    """Part of a model (see `models.base.Model`), which sets the attributes."""

    config: Config
    _layers: list[Layer]

    @property
    def routing_counts(self) -> npt.NDArray[np.int64]:
        """(mixture layers, experts) selections so far."""
        rows = [layer.mixture.counts for layer in self._layers if layer.mixture is not None]
        return np.array(rows, np.int64).reshape(len(rows), self.config.num_experts)

    @property
    def mixture_layers(self) -> list[int]:
        """The layer of each row of `routing_counts`."""
        return [i for i, layer in enumerate(self._layers) if layer.mixture is not None]

    def uncount(self, rows: Sequence[int]) -> None:
        """Take rows of the last step out of the counts; see `models.base.Model.uncount`."""
        for layer in self._layers:
            if layer.mixture is not None:
                layer.mixture.uncount(rows)
