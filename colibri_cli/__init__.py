"""The `coli` command line: commands, supervisor, chat formats and model store."""

__version__ = "0.1.0"
