"""Empty caches of a model, stored as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_engine.kernels import KvCache

if TYPE_CHECKING:
    from colibri_engine.models.base import DraftModel, Model


def make_cache(model: Model, dtype: str) -> KvCache:
    """Return an empty cache of a model for one sequence.

    Args:
        model: The model.
        dtype: What its rows are kept as: "f32" or "bf16".
    """
    return _stored_as(model.make_cache(), dtype)


def make_draft_cache(model: DraftModel, dtype: str) -> KvCache:
    """Return an empty cache of a model's draft layer; see `make_cache`."""
    return _stored_as(model.make_draft_cache(), dtype)


def _stored_as(cache: KvCache, dtype: str) -> KvCache:
    # Models make what they compute; how it is kept is no business of theirs.
    return cache if dtype == "f32" else KvCache(cache.layouts, dtype)
