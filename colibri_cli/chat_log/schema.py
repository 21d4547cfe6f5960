"""The tables of the log, as numbered steps from an empty file to the present version.

A step that was published is never edited: a change of the tables is a new step.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_log.records import utc_now
from colibri_cli.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST: Final = """
CREATE TABLE conversations (
  id TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  model TEXT NOT NULL,
  endpoint TEXT,
  created TEXT NOT NULL,
  updated TEXT NOT NULL,
  tags TEXT NOT NULL DEFAULT '',
  head TEXT
);
CREATE INDEX conversations_by_time ON conversations(updated);
CREATE TABLE responses (
  id TEXT PRIMARY KEY,
  conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  parent_id TEXT,
  prompt TEXT NOT NULL,
  system TEXT,
  response TEXT NOT NULL,
  reasoning TEXT NOT NULL DEFAULT '',
  options_json TEXT NOT NULL DEFAULT '{}',
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  ttft_ms INTEGER,
  duration_ms INTEGER,
  tok_s REAL,
  hit_pct REAL,
  queue_ms INTEGER,
  finish TEXT,
  error TEXT,
  datetime_utc TEXT NOT NULL
);
CREATE INDEX responses_by_conversation ON responses(conversation_id);
CREATE TABLE attachments (
  sha256 TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  mime TEXT NOT NULL,
  content BLOB NOT NULL
);
CREATE TABLE response_attachments (
  response_id TEXT NOT NULL REFERENCES responses(id) ON DELETE CASCADE,
  sha256 TEXT NOT NULL REFERENCES attachments(sha256),
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (response_id, position)
);
CREATE VIEW conversation_list AS
  SELECT c.rowid AS number, c.*,
    (SELECT COUNT(*) FROM responses WHERE conversation_id = c.id) AS num_turns
  FROM conversations c;
CREATE VIRTUAL TABLE responses_text USING fts5(
  prompt, response, content='responses', content_rowid='rowid'
);
CREATE TRIGGER responses_added AFTER INSERT ON responses BEGIN
  INSERT INTO responses_text(rowid, prompt, response)
  VALUES (new.rowid, new.prompt, new.response);
END;
CREATE TRIGGER responses_removed AFTER DELETE ON responses BEGIN
  INSERT INTO responses_text(responses_text, rowid, prompt, response)
  VALUES ('delete', old.rowid, old.prompt, old.response);
END;
CREATE TRIGGER responses_changed AFTER UPDATE OF prompt, response ON responses BEGIN
  INSERT INTO responses_text(responses_text, rowid, prompt, response)
  VALUES ('delete', old.rowid, old.prompt, old.response);
  INSERT INTO responses_text(rowid, prompt, response)
  VALUES (new.rowid, new.prompt, new.response);
END;
"""
MIGRATIONS: Final = (_FIRST,)


def migrate(connection: sqlite3.Connection, source: str) -> None:
    """Bring the tables to the present version; several processes may try at once.

    Raises:
        LogError: a newer version of the program wrote the file.
    """
    if _version(connection) == len(MIGRATIONS):
        return
    with transaction(connection):
        version = _known_version(connection, source)  # another process may have been faster
        if version == 0:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (version INTEGER PRIMARY KEY, applied TEXT NOT NULL)"
            )
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (number, utc_now()))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep all that is written in a block, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it already
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    """Return the number of the last step that was taken; 0 for an empty file."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'"
    if connection.execute(query).fetchone() is None:
        return 0
    return int(connection.execute("SELECT COALESCE(MAX(version), 0) FROM migrations").fetchone()[0])


def _known_version(connection: sqlite3.Connection, source: str) -> int:
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise LogError(
            f"{source} has version {version}, this coli knows up to {len(MIGRATIONS)}",
            hint="update coli, or name another place with XDG_DATA_HOME",
        )
    return version


def _statements(script: str) -> list[str]:
    """Split a script into statements; `executescript` would end the transaction."""
    statements, begun = [], ""
    for line in script.splitlines():
        begun += f"{line}\n"
        if sqlite3.complete_statement(begun):
            statements.append(begun.strip())
            begun = ""
    return statements
