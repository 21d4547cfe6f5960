"""Reading and writing the log.

The file is created readable by its user only and kept in write-ahead mode, so that several chats
and readers share it. A writer waits at most two seconds for another one. Calls block for the time
of a query: on an event loop they belong in a thread, one at a time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

from colibri_cli.chat_log.records import (
    SHORT_ID,
    Attachment,
    LoggedConversation,
    LoggedTurn,
    SearchHit,
    utc_now,
)
from colibri_cli.chat_log.schema import migrate, transaction
from colibri_cli.errors import LogError
from colibri_cli.whole_files import SHOWN, make_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_WAIT_S: Final = 2.0
_PAUSE_S: Final = 0.01
_TURN_FIELDS: Final = (
    "id", "parent_id", "prompt", "system", "response", "reasoning", "prompt_tokens",
    "completion_tokens", "ttft_ms", "duration_ms", "tok_s", "hit_pct", "queue_ms", "finish",
    "error", "datetime_utc",
)  # fmt: skip
_CONVERSATION_FIELDS: Final = (
    "id", "title", "model", "endpoint", "created", "updated", "tags", "head", "num_turns",
)  # fmt: skip
_ADD_CONVERSATION: Final = """
INSERT INTO conversations (id, title, model, endpoint, created, updated, tags)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
_ADD_TURN: Final = """
INSERT INTO responses (
  id, conversation_id, parent_id, prompt, system, response, reasoning, options_json,
  prompt_tokens, completion_tokens, ttft_ms, duration_ms, tok_s, hit_pct, queue_ms, finish, error,
  datetime_utc
) VALUES (
  :id, :conversation_id, :parent_id, :prompt, :system, :response, :reasoning, :options_json,
  :prompt_tokens, :completion_tokens, :ttft_ms, :duration_ms, :tok_s, :hit_pct, :queue_ms, :finish,
  :error, :datetime_utc
) ON CONFLICT (id) DO UPDATE SET
  response = excluded.response, reasoning = excluded.reasoning,
  options_json = excluded.options_json, prompt_tokens = excluded.prompt_tokens,
  completion_tokens = excluded.completion_tokens, ttft_ms = excluded.ttft_ms,
  duration_ms = excluded.duration_ms, tok_s = excluded.tok_s, hit_pct = excluded.hit_pct,
  queue_ms = excluded.queue_ms, finish = excluded.finish, error = excluded.error
"""
_SEARCH: Final = """
SELECT c.*, r.id AS turn_id, r.datetime_utc,
  snippet(responses_text, -1, '[', ']', '…', 12) AS excerpt
FROM responses_text
JOIN responses r ON r.rowid = responses_text.rowid
JOIN conversation_list c ON c.id = r.conversation_id
WHERE responses_text MATCH ? ORDER BY r.datetime_utc DESC, r.rowid DESC LIMIT ?
"""


class ChatLog:
    """An open log.

    Args:
        path: The file; made when it does not exist.

    Raises:
        LogError: it cannot be opened, or is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            make_own(path.parent, SHOWN)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise LogError(f"the log {path} cannot be opened ({error.strerror})") from error
        with self._errors():
            # Transactions are ours to begin: `isolation_level` None.
            self._db = sqlite3.connect(
                path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = sqlite3.Row
        try:
            with self._errors():
                self._db.execute("PRAGMA foreign_keys = ON")
                _keep_a_write_ahead_log(self._db)
                self._db.execute("PRAGMA synchronous = NORMAL")
                migrate(self._db, f"the log {path}")
        except LogError:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ---- writing ----

    def add_turn(self, conversation: LoggedConversation, turn: LoggedTurn) -> None:
        """Add a turn as the conversation's head, and the conversation if it is new.

        A turn of the same id is replaced, so that a continued answer is one turn.
        """
        with self._transaction() as db:
            values = asdict(conversation)
            db.execute(_ADD_CONVERSATION, [values[name] for name in _CONVERSATION_FIELDS[:7]])
            db.execute(
                _ADD_TURN,
                {
                    **{name: getattr(turn, name) for name in _TURN_FIELDS},
                    "conversation_id": conversation.id,
                    "options_json": json.dumps(dict(turn.options), ensure_ascii=False),
                },
            )
            self._attach(db, turn)
            db.execute(
                "UPDATE conversations SET head = ?, updated = ?, model = ? WHERE id = ?",
                (turn.id, utc_now(), conversation.model, conversation.id),
            )

    def set_head(self, conversation_id: str, turn_id: str | None) -> None:
        """Let the conversation go on from another turn; turns that are left stay in the log."""
        with self._transaction() as db:
            db.execute("UPDATE conversations SET head = ? WHERE id = ?", (turn_id, conversation_id))

    def remove(self, conversation_id: str) -> None:
        """Delete a conversation, and files nobody else attached."""
        with self._transaction() as db:
            db.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
            db.execute(
                "DELETE FROM attachments"
                " WHERE sha256 NOT IN (SELECT sha256 FROM response_attachments)"
            )

    # ---- reading ----

    def conversations(self, limit: int | None = None) -> list[LoggedConversation]:
        """Return conversations, the one used last first."""
        query = "SELECT * FROM conversation_list ORDER BY updated DESC, number DESC LIMIT ?"
        with self._errors():
            rows = self._db.execute(query, (-1 if limit is None else limit,))
            return [_conversation(row) for row in rows]

    def find(self, beginning: str) -> LoggedConversation:
        """Return the conversation whose id begins like this.

        Raises:
            LogError: there is none, or more than one.
        """
        wanted = beginning.strip().upper()
        query = "SELECT * FROM conversation_list WHERE substr(id, 1, ?) = ? LIMIT 2"
        with self._errors():
            rows = self._db.execute(query, (len(wanted), wanted)).fetchall()
        if not wanted or not rows:
            raise LogError(
                f"the log has no conversation {beginning!r}",
                hint="`coli chat --search TEXT` and `/history` show the ids",
            )
        if len(rows) > 1:
            raise LogError(
                f"the log has more than one conversation whose id begins with {beginning!r}",
                hint=f"give more of the id; {SHORT_ID} characters are usually enough",
            )
        return _conversation(rows[0])

    def turns(self, conversation: LoggedConversation) -> list[LoggedTurn]:
        """Return the turns up to the conversation's head, oldest first; none that was left."""
        query = "SELECT * FROM responses WHERE conversation_id = ?"
        with self._errors():
            rows = {row["id"]: row for row in self._db.execute(query, (conversation.id,))}
            chain: list[LoggedTurn] = []
            next_id = conversation.head
            while next_id is not None and (row := rows.pop(next_id, None)) is not None:
                chain.append(self._turn(row))
                next_id = row["parent_id"]
        return chain[::-1]

    def search(self, words: str, limit: int = 20) -> list[SearchHit]:
        """Return the latest turns that have all these words (the last may be a beginning)."""
        terms = ['"' + word.replace('"', '""') + '"' for word in words.split()]
        if not terms:
            return []
        with self._errors():
            rows = self._db.execute(_SEARCH, (" ".join(terms) + "*", limit)).fetchall()
        return [
            SearchHit(_conversation(row), row["turn_id"], row["excerpt"], row["datetime_utc"])
            for row in rows
        ]

    def backup(self, target: Path) -> None:
        """Write a consistent copy to a file that does not exist yet, readable by its user only.

        Raises:
            LogError: it cannot be written.
        """
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise LogError(f"{target} cannot be written ({error.strerror})") from error
        with self._errors(), closing(sqlite3.connect(target)) as copy:
            self._db.backup(copy)

    def vacuum(self) -> None:
        """Give the room of what was removed back to the disk.

        Raises:
            LogError: somebody else is using the log.
        """
        with self._errors():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # ---- within ----

    def _attach(self, db: sqlite3.Connection, turn: LoggedTurn) -> None:
        db.execute("DELETE FROM response_attachments WHERE response_id = ?", (turn.id,))
        for position, attachment in enumerate(turn.attachments):
            content = attachment.text.encode("utf-8", "surrogatepass")
            db.execute(
                "INSERT INTO attachments VALUES (?, ?, ?, ?) ON CONFLICT (sha256) DO NOTHING",
                (attachment.sha256, attachment.name, attachment.mime, content),
            )
            db.execute(
                "INSERT INTO response_attachments VALUES (?, ?, ?, ?)",
                (turn.id, attachment.sha256, attachment.name, position),
            )

    def _turn(self, row: sqlite3.Row) -> LoggedTurn:
        query = (
            "SELECT l.name, a.mime, a.content FROM response_attachments l"
            " JOIN attachments a ON a.sha256 = l.sha256 WHERE l.response_id = ? ORDER BY l.position"
        )
        files = tuple(
            Attachment(name, content.decode("utf-8", "surrogatepass"), mime)
            for name, mime, content in self._db.execute(query, (row["id"],))
        )
        values: dict[str, Any] = {name: row[name] for name in _TURN_FIELDS}
        return LoggedTurn(**values, options=_options(row["options_json"]), attachments=files)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors(), transaction(self._db):
            yield self._db

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LogError(
                f"the log {self._path} cannot be used ({error})",
                hint="--no-log leaves it out; a damaged file can be moved away",
            ) from error


def _keep_a_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let others read while one writes; the file keeps the mode.

    SQLite calls no busy handler while the mode changes: of several who begin a file at once all
    but one are turned away on the spot, so the waiting is done here.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The low byte is the primary code (sqlite.org/rescode.html).
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _conversation(row: sqlite3.Row) -> LoggedConversation:
    return LoggedConversation(**{name: row[name] for name in _CONVERSATION_FIELDS})


def _options(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
