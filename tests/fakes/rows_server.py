"""A dataset viewer on loopback: the rows API, with rows in the real shapes and failures on demand.

Point a process at it with COLI_DATASETS_URL. Requests are kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MAX_LENGTH = 100  # of the real one; more is refused


def _letters(texts: list[str]) -> dict[str, list[str]]:
    return {"text": texts, "label": list("ABCDE"[: len(texts)])}


def _hellaswag(n: int) -> dict[str, Any]:
    return {
        "ind": n,
        "activity_label": "Roof shingle removal",
        "ctx_a": f"A man is sitting on roof {n}.",
        "ctx_b": "he",
        "ctx": f"A man is sitting on roof {n}. he",
        "endings": ["is using wrap.", "[step] holds  a tool. [substeps] Wait.", "sleeps.", "ends."],
        "source_id": "activitynet~v_-JhWjGDPHMY",
        "split": "val",
        "split_type": "indomain",
        "label": str(n % 4),
    }


def _arc(n: int) -> dict[str, Any]:
    numbers = {"text": ["a", "b", "c", "d"], "label": ["1", "2", "3", "4"]}
    choices = numbers if n % 2 else _letters(["a", "b", "c", "d"])
    key = "2" if n % 2 else "C"
    return {"id": f"M_{n}", "question": f"Which {n}?", "choices": choices, "answerKey": key}


SHAPES: dict[tuple[str, str, str], Callable[[int], dict[str, Any]]] = {
    ("Rowan/hellaswag", "default", "validation"): _hellaswag,
    ("allenai/ai2_arc", "ARC-Challenge", "test"): _arc,
    ("allenai/ai2_arc", "ARC-Easy", "test"): _arc,
    ("cais/mmlu", "all", "test"): lambda n: {
        "question": f"Find the degree {n}.",
        "subject": "abstract_algebra",
        "choices": ["0", "4", "2", "6"],
        "answer": n % 4,
    },
    ("allenai/winogrande", "winogrande_xl", "validation"): lambda n: {
        "sentence": f"Sarah was surgeon {n}, so _ got the hard cases.",
        "option1": "Sarah",
        "option2": "Maria",
        "answer": "2",
    },
    ("ybisk/piqa", "plain_text", "validation"): lambda n: {
        "goal": f"Open jar {n}",
        "sol1": "Twist the lid.",
        "sol2": "Sing to it.",
        "label": 0,
    },
    ("allenai/openbookqa", "main", "test"): lambda n: {
        "id": f"8-{n}",
        "question_stem": f"A person {n} wants to",
        "choices": _letters(["make it", "sell it", "eat it", "have it"]),
        "answerKey": "D",
    },
}

Answer = Callable[["_Handler"], bool]  # whether it answered instead of the rows


class RowsServer:
    """What is served.

    Args:
        url: Where it is.
        total: Rows of every split.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.total = 1000
        self.requests: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.failures: list[Answer] = []  # one for each of the next requests


class _Handler(BaseHTTPRequestHandler):
    server_state: RowsServer

    def do_GET(self) -> None:
        state = self.server_state
        query = dict(parse_qsl(urlsplit(self.path).query))
        state.requests.append({**query, "path": urlsplit(self.path).path})
        state.headers.append({name.lower(): value for name, value in self.headers.items()})
        if state.failures and state.failures.pop(0)(self):
            return
        shape = SHAPES.get((query["dataset"], query["config"], query["split"]))
        offset, length = int(query["offset"]), int(query["length"])
        if shape is None:
            self.send(404, b'{"error":"The dataset does not exist."}')
            return
        if not 0 < length <= MAX_LENGTH:
            self.send(422, b'{"error":"Parameter length must not be above 100"}')
            return
        numbers = range(offset, min(offset + length, state.total))
        rows = [{"row_idx": n, "row": shape(n), "truncated_cells": []} for n in numbers]
        body = {"features": [], "rows": rows, "num_rows_total": state.total, "partial": False}
        self.send(200, json.dumps(body).encode())

    def send(
        self, status: int, body: bytes, *, cut: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        """Answer; `cut` bytes of what was announced never come."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])

    def log_message(self, *_: object) -> None:
        pass


def status(number: int, **headers: str) -> Answer:
    """Return the answer of a server that is busy or refuses."""

    def answer(handler: _Handler) -> bool:
        handler.send(number, b"{}", headers=headers)
        return True

    return answer


def cut_off(handler: _Handler) -> bool:
    """Drop the connection in the middle of the rows."""
    handler.send(200, b'{"rows": [' + b" " * 1000, cut=500)
    return True


def silent(handler: _Handler) -> bool:
    """Drop the connection before the head."""
    handler.close_connection = True
    return True


def body(text: bytes) -> Answer:
    """Return an answer that says something else."""

    def answer(handler: _Handler) -> bool:
        handler.send(200, text)
        return True

    return answer


def rows(handler: _Handler) -> bool:
    """Answer as usual."""
    del handler
    return False


@contextmanager
def serve_rows() -> Iterator[RowsServer]:
    """Serve on a free port of loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    state = RowsServer(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"server_state": state})
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
