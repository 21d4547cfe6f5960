"""The stream of `benchmarks/gateway.py` served by uvicorn and FastAPI, as one would write it.

Run by an interpreter that has both (with uvloop and httptools, if they are there); prints its port.
"""

# mypy: ignore-errors
# ruff: noqa: ANN201, ANN202, D103
import contextlib
import json
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from benchmarks.lockstep import Lockstep

app = FastAPI()
lockstep = Lockstep()


class Message(BaseModel):
    """One message."""

    role: str
    content: str


class Chat(BaseModel):
    """What is asked for."""

    model: str
    messages: list[Message]
    stream: bool = True
    max_tokens: int = 16


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/v1/chat/completions")
async def chat(body: Chat):
    async def events():
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        async for piece in lockstep.pieces(body.max_tokens):
            choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
            yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=120)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listener])
