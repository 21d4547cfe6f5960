"""Measuring a model on this machine: what is run, and how the figures are shown."""
