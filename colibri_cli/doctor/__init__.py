"""The read-only health check: model, machine, installation; no weights are read."""
