-- Times are microseconds since 1970. Numbers of turns and events begin with 1 in every session and have no gap.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    app TEXT NOT NULL,
    agent TEXT NOT NULL,
    meta TEXT NOT NULL,
    cwd TEXT NOT NULL,
    model TEXT,
    system TEXT,
    permissions TEXT NOT NULL,
    mcp_servers TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at INTEGER,
    turn_count INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    last_turn_at INTEGER,
    agent_session TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_of_app ON sessions (app, created_at, id);
CREATE INDEX sessions_open ON sessions (coalesce(last_turn_at, created_at)) WHERE closed_at IS NULL;
CREATE INDEX sessions_closed ON sessions (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE turns (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    prompt TEXT NOT NULL,
    text TEXT NOT NULL,
    stop_reason TEXT,
    error TEXT,
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    idempotency_key TEXT,
    request_digest TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_read_tokens INTEGER NOT NULL,
    cached_write_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turns_by_idempotency ON turns (session, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_under_way ON turns (session) WHERE state IN ('queued', 'running');

CREATE TABLE events (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    turn INTEGER,
    body TEXT NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX events_of_turn ON events (session, turn, seq) WHERE turn IS NOT NULL;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
