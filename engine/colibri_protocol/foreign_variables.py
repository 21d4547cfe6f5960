"""Variables that other engines of this kind read and ours does not: what takes their place.

Somebody who moves here with a script full of them should not have to find out by measuring that one
does nothing. `docs/settings.md` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ForeignVariable:
    """One such variable.

    Args:
        name: The variable.
        instead: What there is instead, as the end of "NAME is not read: ...".
        same: Values that ask for what happens anyway.
    """

    name: str
    instead: str
    same: frozenset[str] = frozenset({"0", "false", "no", "off"})


_GPU: Final = "experts are computed by the processor; `coli serve --engine vllm` uses GPUs"
_NO_GPU: Final = frozenset({"none", "auto"})
_ON: Final = frozenset({"1", "true", "yes", "on"})
_MEASURED: Final = "`coli bench stream` and STATS have these figures"
_PINS: Final = "the history of experts decides what stays in memory (COLI_USAGE, COLI_AUTOPIN)"
_PARTS: Final = "experts are always read while others are computed; COLI_READ_DEPTH bounds how many"

FOREIGN_VARIABLES: Final = (
    ForeignVariable(
        "COLI_MMAP", "experts are read into slots, never mapped; COLI_DIRECT=0 reads through the"
        " system's cache of files"
    ),
    ForeignVariable("MLOCK", "memory is not locked; a budget that fits (--ram) is not swapped out"),
    ForeignVariable(
        "COLI_NUMA", "memory lies where the system puts it; `numactl --interleave=all coli ...`"
        " spreads it over the sockets"
    ),
    ForeignVariable("COLI_GPU", _GPU, _NO_GPU),
    ForeignVariable("COLI_GPUS", _GPU, _NO_GPU),
    ForeignVariable("COLI_VRAM_GB", _GPU, frozenset({"0", "auto"})),
    ForeignVariable("CUDA_EXPERT_GB", _GPU, frozenset({"0", "auto"})),
    ForeignVariable("PIPE", _PARTS, _ON),
    ForeignVariable("PILOT_K", "as many experts are read ahead as come true (COLI_LOOKAHEAD)"),
    ForeignVariable(
        "TOPP", "experts are not left out by their weight; COLI_EXPERTS_PER_TOKEN takes fewer, and"
        " COLI_TOP_P is about tokens"
    ),
    ForeignVariable("CACHE_ROUTE", "where an expert lies never decides whether it is chosen"),
    ForeignVariable("CAP_RAISE", "COLI_CAP is the most that is kept, and without it all fit", _ON),
    ForeignVariable("PIN", _PINS),
    ForeignVariable("PIN_GB", _PINS),
    ForeignVariable(
        "COLI_RAM_OVERCOMMIT", "a start that cannot fit is refused; give less to conversations"
        " (--ctx, --kv-slots) or raise --ram"
    ),
    ForeignVariable(
        "COLI_SERVE_ALL_STOPS", "every request brings the tokens that end it", frozenset({"0"})
    ),
    ForeignVariable("IDOT", "COLI_NUMERICS chooses the arithmetic", _ON),
    ForeignVariable("SPEC_PIN", "rows are computed alike, drafted or not", _ON),
    ForeignVariable("ROUTE_TRACE", "`python benchmarks/cache_trace.py --record` records choices"),
    ForeignVariable("LOOKA", _MEASURED),
    ForeignVariable("PROF", "`/profile` has these figures for every reply"),
    ForeignVariable("STATS", _MEASURED),
    ForeignVariable("TOKENS", _MEASURED),
)  # fmt: skip


def foreign_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of other engines that are set to what we do not do.

    Args:
        environ: The environment; an empty variable counts as unset.

    Returns:
        By variable, what there is instead.
    """
    return {
        row.name: row.instead
        for row in FOREIGN_VARIABLES
        if (text := environ.get(row.name, "").strip().lower()) and text not in row.same
    }
