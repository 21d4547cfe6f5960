"""Checks of the machine and of this installation."""

from __future__ import annotations

import locale
import platform
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli.doctor.examination import failed, passed, skipped, warned
from colibri_cli.key_files import exposed_key_files, key_files
from colibri_cli.plugin_loader import load_plugins
from colibri_cli.settings import effective_settings, misspelt_variables, unread_variables
from colibri_cli.terminal.sizes import size
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from colibri_cli.doctor.examination import Check, Examination
    from colibri_cli.plugin_types import CheckResult

_ENOUGH_FILES: Final = 65_536
_NETWORK_MOUNTS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph"})
_LOCALHOST: Final = "127.0.0.1"


def check_engine(exam: Examination) -> CheckResult:
    """The engine can be started, with kernels for this processor."""
    engine_bin = exam.context.settings.text("engine_bin")
    if engine_bin is not None:
        path = Path(engine_bin).expanduser()
        if not path.is_file():
            return failed(f"--engine-bin: there is no program {engine_bin}")
        return passed(f"the program {path}")
    machine = exam.inspection.stages.get("machine")
    if machine is None:
        return failed(f"the engine cannot be run: {exam.inspection.why_not('machine')}")
    return passed(f"kernels {machine['isa']} of {', '.join(machine['isas'])}", **machine)


def check_gpu(exam: Examination) -> CheckResult:
    """GPUs: this version computes on the processor alone."""
    del exam
    return skipped("this version computes on the processor alone")


def check_python(exam: Examination) -> CheckResult:
    """Which Python runs; one too old does not come this far."""
    del exam
    version = platform.python_version()
    return passed(f"Python {version} on {platform.system()} {platform.machine()}")


def check_open_files(exam: Examination) -> CheckResult:
    """Enough files may be open for many connections and many shards."""
    del exam
    try:
        import resource
    except ImportError:
        return skipped("no such limit here")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= _ENOUGH_FILES:
        return passed("enough files may be open")
    return warned(
        f"at most {hard} files may be open; only root allows more, with `ulimit -Hn"
        f" {_ENOUGH_FILES}` or `* hard nofile {_ENOUGH_FILES}` in /etc/security/limits.conf"
    )


def check_swap(exam: Examination) -> CheckResult:
    """Memory is not being swapped."""
    del exam
    found = {}
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
        used = found["SwapTotal"] - found["SwapFree"]
    except (OSError, ValueError, KeyError, IndexError):
        return skipped("not measurable here")
    if used > found["MemTotal"] // 20:
        return warned(f"{size(used)} are swapped out: other programs need memory")
    return passed(f"{size(used)} in use")


def check_filesystem(exam: Examination) -> CheckResult:
    """The model lies on a local drive."""
    if exam.path is None:
        return skipped("there is no model")
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return skipped("not known here")
    place = exam.path.resolve()
    best, kind = "", "unknown"
    for line in mounts:
        _, point, found, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and point and place.is_relative_to(point):
            best, kind = point, found
    if kind in _NETWORK_MOUNTS:
        return warned(f"{best} is a network mount ({kind}): reading experts will be slow")
    return passed(f"{best} ({kind})")


def check_port(exam: Examination) -> CheckResult:
    """The port of `coli serve` is free."""
    port = exam.context.settings.integer("port")
    port = 8000 if port is None else port
    with socket.socket() as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((_LOCALHOST, port)) == 0:
            return warned(f"port {port} is in use; `coli ps` lists servers, --port takes another")
    return passed(f"port {port} is free")


def check_plugins(exam: Examination) -> CheckResult:
    """All plugins could be loaded."""
    del exam
    states = load_plugins().states
    broken = [f"{s.source.name}: {s.problem}" for s in states if s.state == "broken"]
    if broken:
        return warned(f"broken: {'; '.join(broken)}")
    return passed(f"{sum(state.state == 'loaded' for state in states)} loaded")


def check_variables(exam: Examination) -> CheckResult:
    """No variable looks like a misspelt setting, or is another engine's."""
    del exam
    unknown = misspelt_variables()
    words = [f"{name} (did you mean {near}?)" if near else name
             for name, near in sorted(unknown.items())]  # fmt: skip
    words += [f"{name} ({instead})" for name, instead in unread_variables().items()]
    if words:
        return warned(f"variables nobody reads: {', '.join(words)}")
    return passed("all known")


def check_keys(exam: Examination) -> CheckResult:
    """Files that hold API keys of `coli serve` can be read by their owner alone."""
    try:
        settings = effective_settings(None, "serve", exam.context.settings.text("profile"))
    except ColibriError as error:
        return skipped(f"the settings of `coli serve` cannot be read: {error.message}")
    exposed = exposed_key_files(settings)
    if exposed:
        return warned("; ".join(exposed))
    number = len(key_files(settings))
    return passed(
        f"{number} file{'' if number == 1 else 's'} of keys" if number else "none is used"
    )


def check_encoding(exam: Examination) -> CheckResult:
    """Text is written as UTF-8."""
    del exam
    name = locale.getpreferredencoding(False)
    if name.lower().replace("-", "") != "utf8":
        return warned(f"{name}: some characters cannot be shown; set LANG=C.UTF-8")
    return passed(name)


ENGINE_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("engine.binary", check_engine),
    ("accelerator.gpu", check_gpu),
)
MACHINE_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("system.python", check_python),
    ("system.open_files", check_open_files),
    ("system.swap", check_swap),
    ("storage.filesystem", check_filesystem),
    ("server.port", check_port),
    ("plugins.loaded", check_plugins),
    ("settings.variables", check_variables),
    ("settings.keys", check_keys),
    ("settings.encoding", check_encoding),
)
