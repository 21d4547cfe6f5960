"""Tool-call syntaxes: one file each, found by name; all expose `SYNTAX` (see `base`)."""
