"""What this machine, and the part of it that this process may use, can do.

Reads /proc, /sys and the control groups (both versions, every parent group included); everywhere
else it falls back to what Python knows. Sizes are bytes. `root` is `/` except in tests.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path("/")
_UNLIMITED: Final = 1 << 60  # version 1 writes a number near 2^63 for "no limit"


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the machine, and what a new allocation may take.

    `limit` names what bounds `available` if it is not the machine: a control group or a resource
    limit, and how much that allows.
    """

    total: int
    available: int
    limit: tuple[str, int] | None = None


class _Group(NamedTuple):
    """A control group: its folder, and the version of its interface."""

    path: Path
    version: int


def num_usable_cores(root: Path = _ROOT) -> int:
    """Return the physical cores this process may use: affinity, then the groups' CPU quota.

    Two threads of one core count once: kernels that wait for memory gain nothing from the second.
    """
    cpus = _affinity()
    cores = {_core_of(cpu, root) for cpu in cpus}
    quota = _cpu_quota(root)
    usable = len(cores) if quota is None else min(len(cores), int(quota))
    return max(usable, 1)


def num_sockets(root: Path = _ROOT) -> int:
    """Return how many processors (packages) the cores this process may use are spread over."""
    folder = root / "sys/devices/system/cpu"
    found = {_read(folder / f"cpu{cpu}/topology/physical_package_id") for cpu in _affinity()}
    return max(len(found - {""}), 1)


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core_of(cpu: int, root: Path) -> str:
    """Return a name that all hardware threads of one core share."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # new and old name of the same list
        siblings = _read(folder / name)
        if siblings:
            return siblings
    return str(cpu)


def _cpu_quota(root: Path) -> float | None:
    """Return the processors' worth of time the tightest group allows."""
    quotas: list[float] = []
    for group in _groups("cpu", root):
        if group.version == 2:
            words = _read(group.path / "cpu.max").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [_read(group.path / name) for name in names]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory(root: Path = _ROOT) -> Memory:
    """Return the memory a new allocation may take; cached file pages count as free."""
    total, available = _system_memory(root)
    limit: tuple[str, int] | None = None
    for group in _groups("memory", root):
        bound, used = _group_memory(group)
        if bound is not None and bound - used < available:
            available = max(bound - used, 0)
            limit = (str(group.path), bound)
    room = _address_space_left(root)
    if room is not None and room[0] < available:
        available, limit = room[0], ("the address space limit (ulimit -v)", room[1])
    return Memory(total, available, limit)


def _system_memory(root: Path) -> tuple[int, int]:
    fields: dict[str, int] = {}
    for line in _read(root / "proc/meminfo").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            fields[words[0].rstrip(":")] = int(words[1]) * 1024
    if "MemTotal" in fields:
        free = fields.get("MemAvailable", fields.get("MemFree", 0))
        return fields["MemTotal"], free
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return total, total
    return _UNLIMITED, _UNLIMITED  # nothing is known, so nothing is refused


def _address_space_left(root: Path) -> tuple[int, int] | None:
    """Return what RLIMIT_AS leaves, and the limit itself; None without one."""
    if sys.platform == "win32":
        return None
    import resource

    bound, _ = resource.getrlimit(resource.RLIMIT_AS)
    words = _read(root / "proc/self/statm").split()
    if bound == resource.RLIM_INFINITY or not words or not words[0].isdigit():
        return None
    return max(bound - int(words[0]) * os.sysconf("SC_PAGE_SIZE"), 0), bound


def _group_memory(group: _Group) -> tuple[int | None, int]:
    """Return the limit of a group (None: none) and what it uses that cannot be given back."""
    v2 = group.version == 2
    bound = _read_int(group.path / ("memory.max" if v2 else "memory.limit_in_bytes"))
    used = _read_int(group.path / ("memory.current" if v2 else "memory.usage_in_bytes"))
    if bound is None or bound >= _UNLIMITED or used is None:
        return None, 0
    prefix = "" if v2 else "total_"  # version 1 needs the sums over child groups
    cached = 0
    for line in _read(group.path / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in {f"{prefix}inactive_file", f"{prefix}active_file"} and value.isdigit():
            cached += int(value)
    return bound, max(used - cached, 0)


def _groups(controller: str, root: Path) -> Iterator[_Group]:
    """Yield the groups this process is in, from its own up to the highest one visible."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        number, controllers, path = parts
        if number == "0" and not controllers:
            yield from _ancestors(root / "sys/fs/cgroup", path, 2)
        elif controller in controllers.split(","):
            for folder in (controllers, controller):
                top = root / "sys/fs/cgroup" / folder
                if top.is_dir():
                    yield from _ancestors(top, path, 1)
                    break


def _ancestors(top: Path, path: str, version: int) -> Iterator[_Group]:
    """Yield `top`/`path` and its parents; a container may see only `top` itself."""
    folder = top / path.lstrip("/")
    while top in folder.parents:
        if folder.is_dir():
            yield _Group(folder, version)
        folder = folder.parent
    yield _Group(top, version)


def resident_bytes(root: Path = _ROOT) -> int:
    """Return the memory this process occupies now; its peak where only that is known."""
    words = _read(root / "proc/self/statm").split()
    if len(words) > 1 and words[1].isdigit():
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_name(root: Path = _ROOT) -> str:
    """Return what the processor calls itself."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in {"model name", "hardware"} and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _read_int(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() else None
