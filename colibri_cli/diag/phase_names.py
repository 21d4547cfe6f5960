"""The phases of `coli diag` by name, in the order they run."""

from typing import Final

PHASES: Final = ("system", "smoke", "diagnostic", "quality", "throughput")
FIRST: Final = PHASES[0]
