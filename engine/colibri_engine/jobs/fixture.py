"""Write a random model of real geometry, to measure with: `python -m colibri_engine fixture`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_engine.fixtures.geometry import GEOMETRIES, build_config, without_draft
from colibri_engine.fixtures.pools import FORMAT_NAMES
from colibri_engine.fixtures.writing import write_fixture

if TYPE_CHECKING:
    from colibri_engine.jobs.base import JobOutput

_DEFAULT_FORMAT: Final = {"bench": "int4-g128"}


def run(argv: list[str], output: JobOutput) -> None:
    """Write the directory OUT.

    Raises:
        BadChoice: the choices do not fit each other, or OUT is not empty.
        OSError: the disk is full, or may not be written.
    """
    parser = argparse.ArgumentParser(prog="fixture", description=__doc__)
    parser.add_argument("--geometry", choices=list(GEOMETRIES), required=True)
    parser.add_argument("--layers", type=int, help="decoder layers, the draft layer not counted")
    parser.add_argument("--experts", type=int, help="routed experts per layer")
    parser.add_argument("--format", choices=FORMAT_NAMES, help="of the routed experts")
    parser.add_argument("--no-draft", action="store_true", help="leave the draft layer out")
    parser.add_argument("out", type=Path, metavar="OUT")
    arguments = parser.parse_args(argv)
    config = build_config(arguments.geometry, arguments.layers, arguments.experts)
    if arguments.no_draft:
        config = without_draft(config)
    chosen = arguments.format or _DEFAULT_FORMAT.get(arguments.geometry, "int4-g64")
    write_fixture(arguments.out, config, chosen, output)
