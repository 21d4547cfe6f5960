"""The inference engine: one process, one loaded model, driven over the line protocol.

Importing the package loads nothing heavy; `python -m colibri_engine` is the way in.
"""
