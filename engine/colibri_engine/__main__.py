"""Entry of the engine process: `python -m colibri_engine [CAP]`, or `coli-engine`.

With the name of a job as its first argument it runs that instead; see `colibri_engine.jobs`.

Keeps file descriptor 1 for the protocol, reads the configuration, loads the model, serves. A start
that fails is one line on standard error with the remedy, the same in the extended protocol's FAILED
form, and an exit code: 3 for the model, 2 for a setting, 1 for anything else.
"""

from __future__ import annotations

import logging
import os
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NoReturn

from colibri_engine.config import read_config, wants_caps
from colibri_engine.errors import EXIT_FAILURE, ColibriError, EngineError, exit_code, reason_of
from colibri_engine.extensions import extend
from colibri_engine.jobs import JOBS
from colibri_engine.jobs import main as run_job
from colibri_engine.notices import configure_notices
from colibri_engine.streams import install_signals, start_reader, start_watch, take_stdout
from colibri_protocol.frames import encode
from colibri_protocol.messages import StartFailed
from colibri_protocol.session import EngineSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.worker import Worker

logger = logging.getLogger(__name__)

_EXIT_INTERRUPTED: Final = 130
_SYSTEM: Final = "check that file, its permissions and its disk"
_BUG: Final = "this is a fault of the program; what it was doing stands above"


def main() -> NoReturn:
    """Run the engine process, or a job."""
    argv = sys.argv[1:]
    raise SystemExit(run_job(argv) if argv and argv[0] in JOBS else run(argv))


def run(argv: Sequence[str]) -> int:
    """Serve on standard input and output; return the exit code."""
    output = take_stdout()
    try:
        config = read_config(argv)
        extend()
        _configure_logging(config)
        inbox: SimpleQueue[object] = SimpleQueue()
        start_watch(output, inbox, parent=config.parent_pid)
        worker = _load(config, inbox, output)
    except ColibriError as exc:
        _tell_failure(exc, output)
        return exit_code(exc)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED  # later it only ends replies
    except OSError as exc:  # a file that went away meanwhile, a full disk
        error = EngineError(f"the start failed: {reason_of(exc)}", hint=_SYSTEM)
        _tell_failure(error, output)
        return EXIT_FAILURE
    except Exception as exc:  # the one place where a bug during the start can be told
        logger.exception("the start failed")
        _tell_failure(EngineError(f"{type(exc).__name__}: {exc}", hint=_BUG), output)
        return EXIT_FAILURE
    install_signals(inbox)
    start_reader(sys.stdin.fileno(), inbox)
    return worker.run()


def _load(config: EngineConfig, inbox: SimpleQueue[object], output: int) -> Worker:
    from colibri_engine.intake import Intake
    from colibri_engine.startup import load  # numpy and the kernels
    from colibri_engine.worker import WORDS, Worker

    engine, tokenizer, model_info, compiler = load(config)
    session = EngineSession(WORDS if config.has_caps else ())
    intake = Intake(tokenizer, inbox, compiler)
    return Worker(engine, intake, session, inbox, output, model_info)


def _configure_logging(config: EngineConfig) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=config.log_level, format="coli-engine: %(levelname)s: %(message)s"
    )
    configure_notices()
    for name, near in config.unknown.items():
        hint = f"; did you mean {near}?" if near else ""
        logger.warning("%s is set but is no setting%s", name, hint)
    for name, instead in config.foreign.items():
        logger.warning("%s is not read: %s", name, instead)


def _tell_failure(error: ColibriError, output: int) -> None:
    remedy = f"; {error.hint}" if error.hint else ""
    sys.stderr.write(f"coli-engine: error: {error.message}{remedy}\n")
    if wants_caps():
        # The protocol carries UTF-8; the name of a file may be anything.
        hint = error.hint and _utf8(error.hint)
        details = {
            name: _utf8(value) if isinstance(value, str) else value
            for name, value in error.details().items()
        }
        try:
            os.write(output, encode(StartFailed(error.code, _utf8(error.message), hint, details)))
        except BrokenPipeError:
            return


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main()
