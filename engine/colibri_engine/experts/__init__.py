"""Routed experts that are not all in memory: where they lie, which stay, how they are fetched."""
