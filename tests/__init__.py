"""Tests mirror the source paths; `tests.fakes` has stand-ins with the real interfaces."""
