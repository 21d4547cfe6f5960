"""One module per subcommand, found by name and imported only when used.

A module exposes `command` (a function Typer understands) or `app` (a Typer group); the first line
of the function's docstring is its help. No command imports another.
"""
