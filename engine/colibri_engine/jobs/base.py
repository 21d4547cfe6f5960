"""How a job speaks with whoever started it."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from colibri_engine.errors import ConversionError

if TYPE_CHECKING:
    from typing import TextIO


class JobOutput:
    """Lines on standard output; calling it reports progress. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        """Report progress; see `progress`."""
        self.progress(done, total)

    def progress(self, done: int, total: int) -> None:
        """Write `PROGRESS done total`."""
        self.say("PROGRESS", f"{done} {total}")

    def say(self, word: str, text: str) -> None:
        """Write one line: a word in capitals and what belongs to it, line breaks made spaces."""
        with self._lock:
            sys.stdout.write(f"{word} {' '.join(text.splitlines())}\n")
            sys.stdout.flush()


class LineCarrier:
    """Files brought by whoever started the job; see `conversion.deliveries.Carrier`.

    Args:
        output: Where files are asked for.
        answers: Where the answers come from, one a line.
    """

    def __init__(self, output: JobOutput, answers: TextIO) -> None:
        self._output = output
        self._changed = threading.Condition()
        self._asked: set[str] = set()
        self._here: set[str] = set()
        self._lost: dict[str, str] = {}
        self._has_ended = False
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def want(self, name: str) -> None:
        """Write `NEED name`, once."""
        with self._changed:
            if name in self._asked:
                return
            self._asked.add(name)
        self._output.say("NEED", name)

    def wait(self, name: str) -> None:
        """Return when the answer is `HAVE name`.

        Raises:
            ConversionError: the answer is `LOST name reason`, or nobody answers any more.
        """
        self.want(name)
        with self._changed:
            self._changed.wait_for(
                lambda: name in self._here or name in self._lost or self._has_ended
            )
            if name in self._here:
                return
            reason = self._lost.get(name, "nobody brings files any more")
        raise ConversionError(
            f"{name} could not be fetched: {reason}",
            hint="run the same command again: what is done is kept",
        )

    def release(self, name: str) -> None:
        """Write `DONE name`; it may be asked for again."""
        with self._changed:
            self._asked.discard(name)
            self._here.discard(name)
        self._output.say("DONE", name)

    def _listen(self, answers: TextIO) -> None:
        for line in answers:
            word, _, rest = line.strip().partition(" ")
            name, _, reason = rest.partition(" ")
            with self._changed:
                if word == "HAVE":
                    self._here.add(name)
                elif word == "LOST":
                    self._lost[name] = reason
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
