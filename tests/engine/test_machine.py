"""Cores and memory as the kernel and the control groups tell them, from made-up file trees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colibri_engine import machine

GB = 1_000_000_000


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def meminfo(total: int, available: int) -> str:
    return (
        f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\n"
        "HugePages_Total:       0"
    )


def test_without_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/meminfo": meminfo(64 * 1024**3, 48 * 1024**3)})
    assert machine.memory(root) == machine.Memory(64 * 1024**3, 48 * 1024**3)


def test_a_version_2_limit_counts_and_cached_files_do_not(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/app/job"
    root = write(
        tmp_path,
        {
            "proc/meminfo": meminfo(256 * GB, 200 * GB),
            "proc/self/cgroup": "0::/app/job",
            f"{group}/memory.max": str(8 * GB),
            f"{group}/memory.current": str(7 * GB),
            f"{group}/memory.stat": (
                f"anon {GB}\nfile {6 * GB}\nshmem {GB}\n"
                f"inactive_file {4 * GB}\nactive_file {GB}\nslab 5"
            ),
        },
    )
    found = machine.memory(root)
    assert found.available == 8 * GB - 2 * GB  # anonymous and shared memory stay used
    assert found.limit == (str(root / group), 8 * GB)


def test_a_limit_on_a_parent_group_counts(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    root = write(
        tmp_path,
        {
            "proc/meminfo": meminfo(256 * GB, 200 * GB),
            "proc/self/cgroup": "0::/app/job",
            f"{top}/app/job/memory.max": "max",
            f"{top}/app/job/memory.current": "5",
            f"{top}/app/memory.max": str(4 * GB),
            f"{top}/app/memory.current": str(GB),
            f"{top}/app/memory.stat": "anon 1",
        },
    )
    assert machine.memory(root).available == 3 * GB


def test_a_version_1_limit_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/box"
    root = write(
        tmp_path,
        {
            "proc/meminfo": meminfo(256 * GB, 200 * GB),
            "proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/box\n0::/",
            f"{group}/memory.limit_in_bytes": str(8 * GB),
            f"{group}/memory.usage_in_bytes": str(6 * GB),
            f"{group}/memory.stat": f"inactive_file 1\ntotal_inactive_file {3 * GB}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(90 * GB),
        },
    )
    assert machine.memory(root).available == 5 * GB


def test_a_container_that_sees_only_the_top_of_its_groups(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/meminfo": meminfo(256 * GB, 200 * GB),
            "proc/self/cgroup": "0::/kubepods/pod1/abc",
            "sys/fs/cgroup/memory.max": str(2 * GB),
            "sys/fs/cgroup/memory.current": str(GB),
        },
    )
    assert machine.memory(root).available == GB


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/meminfo": meminfo(256 * GB, 200 * GB),
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": str(GB),
            "sys/fs/cgroup/memory.current": str(2 * GB),
        },
    )
    assert machine.memory(root).available == 0


LIMITED = """
import resource
from colibri_engine import machine
limit = 4 * 1024**3
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found = machine.memory()
assert found.limit == ("the address space limit (ulimit -v)", limit), found
assert limit - 10**9 < found.available < limit, found
"""


@pytest.mark.skipif(machine.memory().available < 5 * GB, reason="needs 5 GB of free memory")
def test_a_limited_address_space_counts() -> None:
    environment = {"PYTHONPATH": str(Path(machine.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", LIMITED], check=True, env=environment)


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_affinity", lambda: {0, 1, 2, 3})


@pytest.mark.usefixtures("four_threads")
def test_two_threads_of_one_core_count_once(tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    files = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text
        for cpu, text in siblings.items()
    }
    assert machine.num_usable_cores(write(tmp_path, files)) == 2


@pytest.mark.usefixtures("four_threads")
def test_packages_of_the_usable_cores_are_counted(tmp_path: Path) -> None:
    assert machine.num_sockets(tmp_path) == 1
    files = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id": f"{package}\n"
        for cpu, package in enumerate((0, 1, 0, 1, 2))  # of the last no core may be used
    }
    assert machine.num_sockets(write(tmp_path, files)) == 2


@pytest.mark.usefixtures("four_threads")
def test_without_topology_each_processor_is_a_core(tmp_path: Path) -> None:
    assert machine.num_usable_cores(tmp_path) == 4


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("", 4)]
)
def test_a_version_2_quota_bounds_the_threads(tmp_path: Path, quota: str, cores: int) -> None:
    files = {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": quota}
    assert machine.num_usable_cores(write(tmp_path, files)) == cores


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("quota", "cores"), [("-1", 4), ("300000", 3)])
def test_a_version_1_quota_bounds_the_threads(tmp_path: Path, quota: str, cores: int) -> None:
    files = {
        "proc/self/cgroup": "2:cpu,cpuacct:/a\n0::/",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
    }
    assert machine.num_usable_cores(write(tmp_path, files)) == cores


def test_this_machine_has_figures() -> None:
    found = machine.memory()
    assert 0 < found.available <= found.total
    assert 1 <= machine.num_usable_cores() <= (os.cpu_count() or 1)
    assert machine.resident_bytes() > 1_000_000
    assert machine.cpu_name()


def test_the_name_of_the_processor(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n"})
    assert machine.cpu_name(root) == "Some CPU @ 3 GHz"
