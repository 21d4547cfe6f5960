"""Conversion of checkpoints into containers. Runs in a job's process; knows no terminal."""
