"""The tables of the service's file, as the steps that made them: a file of any earlier version is brought up.

A step is never edited once it is released; a change is a new step at the end. Steps only add, so that a
service that still runs an earlier version goes on working.
"""

from __future__ import annotations

APPLICATION_ID = 0x7469_7073  # "tips": what tells our file from any other

_FIRST = (
    """
    CREATE TABLE token (
        token_id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL, role TEXT NOT NULL, prefix TEXT NOT NULL, hash BLOB NOT NULL,
        created_ms INTEGER NOT NULL, last_used_ms INTEGER, revoked_ms INTEGER
    )""",
    "CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_ms IS NULL",
    "CREATE INDEX token_prefix ON token (prefix)",
    """
    CREATE TABLE audit (
        entry_id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
        who TEXT NOT NULL, role TEXT NOT NULL, action TEXT NOT NULL,
        target TEXT NOT NULL, detail TEXT NOT NULL, ip TEXT NOT NULL
    )""",
    "CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is kept'); END",
    "CREATE TRIGGER audit_kept BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is kept'); END",
    """
    CREATE TABLE job (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL,
        kind TEXT NOT NULL, title TEXT NOT NULL, experiment TEXT NOT NULL, params TEXT NOT NULL,
        state TEXT NOT NULL, pid INTEGER, pid_started REAL, exit_code INTEGER,
        created_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
        folder TEXT NOT NULL, "by" TEXT NOT NULL
    )""",
    "CREATE INDEX job_state ON job (state)",
    """
    CREATE TABLE draft (
        batch_id TEXT NOT NULL, judge TEXT NOT NULL, item_id TEXT NOT NULL,
        answer TEXT NOT NULL, updated_ms INTEGER NOT NULL,
        PRIMARY KEY (batch_id, judge, item_id)
    ) WITHOUT ROWID""",
)
_SECOND = (
    """
    CREATE TABLE rejection (
        batch_id TEXT NOT NULL, judge TEXT NOT NULL, reason TEXT NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (batch_id, judge)
    ) WITHOUT ROWID""",
    """
    CREATE TABLE delivery (
        delivery_id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
        event TEXT NOT NULL, url TEXT NOT NULL, body TEXT NOT NULL, created_ms INTEGER NOT NULL,
        state TEXT NOT NULL, attempts INTEGER NOT NULL, next_ms INTEGER NOT NULL,
        status INTEGER, last_error TEXT NOT NULL, ended_ms INTEGER
    )""",
    "CREATE INDEX delivery_due ON delivery (next_ms) WHERE state = 'waiting'",
    "CREATE TABLE seen (nonce BLOB PRIMARY KEY, until_ms INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX seen_until ON seen (until_ms)",
    "CREATE TABLE secret (purpose TEXT PRIMARY KEY, key BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE attempt (attempt_id INTEGER PRIMARY KEY, address TEXT NOT NULL, at_ms INTEGER NOT NULL)",
    "CREATE INDEX attempt_at ON attempt (at_ms)",
)

# What a judge with this token is: verdicts of people and of agents are never averaged.
_THIRD = ("ALTER TABLE token ADD COLUMN kind TEXT NOT NULL DEFAULT 'human'",)

STEPS = (_FIRST, _SECOND, _THIRD)
VERSION = len(STEPS)
