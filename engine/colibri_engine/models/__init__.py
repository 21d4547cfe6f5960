"""Architectures, one file each, named like the checkpoint's `model_type`."""
