"""A model of the hub as the source of a conversion: fetched file by file, and dropped again.

Headers of the weight files come first, a few kilobytes each, so that everything can be planned.
Then the engine's job asks for one file after the other and says when it is done with one. All of
it lies in `.source` inside the output directory, which vanishes at the end.
"""

from __future__ import annotations

import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import PullError
from colibri_cli.model_store.hugging_face import first_line, is_fetch_failure, load_hub

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from colibri_cli.console import Meters

SOURCE: Final = ".source"
HEADERS: Final = "headers.json"

_SIDE_FILES: Final = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_STREAMS: Final = 2  # files fetched at once
_HEADERS_AT_ONCE: Final = 8
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class HubFiles:
    """What a repository holds, at one commit.

    Args:
        repository: `ORG/NAME`.
        commit: The commit.
        sizes: Bytes of the weight files by name.
    """

    repository: str
    commit: str
    sizes: dict[str, int]


def prepare_source(repository: str, revision: str | None, directory: Path) -> HubFiles:
    """Fetch configuration, tokenizer and headers of a repository into a directory.

    Args:
        repository: `ORG/NAME`.
        revision: Branch, tag or commit; None is the default branch.
        directory: Made if absent.

    Raises:
        PullError: the extra is missing, or the hub refuses or cannot be reached.
    """
    hub = load_hub()
    try:
        info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
        files = HubFiles(repository, info.sha, _weight_files(info.siblings, repository))
        present = {file.rfilename for file in info.siblings}
        for name in _SIDE_FILES:
            if name in present:
                _fetch(hub, files, name, directory)
        headers = _headers(hub, files)
    except Exception as error:
        if not is_fetch_failure(error):
            raise
        raise PullError(
            f"{repository} could not be fetched: {first_line(error)}",
            hint="check the name and the network; gated models need `hf auth login`",
        ) from error
    text = json.dumps(headers)
    (directory / HEADERS).write_text(text, encoding="utf-8")
    return files


class Fetcher:
    """Fetches weight files when asked, two at a time, and shows how it goes.

    Args:
        files: What there is.
        directory: Where they go.
        answer: Writes a line to whoever asks.
        meters: Where bytes are shown.
    """

    def __init__(
        self, files: HubFiles, directory: Path, answer: Callable[[str], None], meters: Meters
    ) -> None:
        self._hub = load_hub()
        self._files = files
        self._directory = directory
        self._answer = answer
        self._meters = meters
        self._asked: queue.Queue[str] = queue.Queue()
        self._finished_bytes = 0
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        # Daemons: a program that ends does not wait for downloads.
        for _ in range(_STREAMS):
            threading.Thread(target=self._work, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def need(self, name: str) -> None:
        """Fetch a file; the answer is a line HAVE or LOST."""
        self._asked.put(name)

    def done(self, name: str) -> None:
        """Remove a file that nobody needs any more."""
        (self._directory / name).unlink(missing_ok=True)

    def _work(self) -> None:
        while True:
            name = self._asked.get()
            with self._lock:
                self._under_way.add(name)
            line = f"LOST {name} an unexpected error"
            try:
                _fetch(self._hub, self._files, name, self._directory)
                line = f"HAVE {name}"
            except Exception as error:
                if not is_fetch_failure(error):
                    raise
                line = f"LOST {name} {first_line(error)}"
            finally:  # or the job would wait for ever
                with self._lock:
                    self._under_way.discard(name)
                    self._finished_bytes += self._files.sizes.get(name, 0)
                self._show()
                self._answer(line)

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_POLL_S):
            self._show()

    def _show(self) -> None:
        with self._lock:
            names, done = sorted(self._under_way), self._finished_bytes
        done += sum(path.stat().st_size for path in self._partial_files())
        if not names and not done:
            return  # nothing has begun; where everything is converted, nothing will
        total = sum(self._files.sizes.values())
        title = f"fetching {', '.join(names)}" if names else "fetched"
        self._meters.update("download", title, min(done, total), total)

    def _partial_files(self) -> list[Path]:
        return [path for path in self._directory.rglob("*.incomplete") if path.is_file()]


def _weight_files(siblings: Sequence[Any], repository: str) -> dict[str, int]:
    """Return the sizes of the safetensors files that lie at the top."""
    sizes = {
        file.rfilename: int(file.size or 0)
        for file in siblings
        if file.rfilename.endswith(".safetensors") and "/" not in file.rfilename
    }
    if not sizes:
        raise PullError(
            f"{repository} has no *.safetensors files",
            hint="pull a GGUF file of it (coli pull) and convert that",
        )
    return sizes


def _fetch(hub: Any, files: HubFiles, name: str, directory: Path) -> None:  # noqa: ANN401
    hub.hf_hub_download(files.repository, name, revision=files.commit, local_dir=str(directory))


def _headers(hub: Any, files: HubFiles) -> dict[str, Any]:  # noqa: ANN401
    """Return size, metadata and tensors of every weight file."""
    api = hub.HfApi()

    def read(name: str) -> dict[str, Any]:
        found = api.parse_safetensors_file_metadata(files.repository, name, revision=files.commit)
        tensors = {
            tensor: {
                "dtype": str(info.dtype),
                "shape": list(info.shape),
                "data_offsets": list(info.data_offsets),
            }
            for tensor, info in found.tensors.items()
        }
        return {"size": files.sizes[name], "metadata": dict(found.metadata), "tensors": tensors}

    with ThreadPoolExecutor(_HEADERS_AT_ONCE) as executor:
        return dict(zip(files.sizes, executor.map(read, files.sizes), strict=True))
