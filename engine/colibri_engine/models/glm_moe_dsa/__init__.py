"""GLM-5, 5.1 and 5.2: what an architecture offers, its sizes and its forward pass."""

from colibri_engine.models.glm_moe_dsa.config import Config, read_indexer_types
from colibri_engine.models.glm_moe_dsa.model import Model, cache_layouts, draft_layouts

__all__ = ["Config", "Model", "cache_layouts", "draft_layouts", "read_indexer_types"]
