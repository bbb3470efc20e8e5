-- Times are microseconds since 1970 (UTC) unless a comment says otherwise.
CREATE TABLE apps (
    name TEXT PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL
) STRICT;

-- `holder` is the node that holds the lease. Every new lease increments `fence`, and a write under an older fence is
-- refused. The usage columns are sums over all turns of the session.
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
    last_turn_at INTEGER,
    agent_session TEXT,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_read_tokens INTEGER NOT NULL DEFAULT 0,
    cached_write_tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0.0,
    holder TEXT,
    fence INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_of_app ON sessions (app, created_at, id);
CREATE INDEX sessions_open ON sessions (coalesce(last_turn_at, created_at)) WHERE closed_at IS NULL;
CREATE INDEX sessions_closed ON sessions (closed_at) WHERE closed_at IS NOT NULL;

-- Turns are numbered from 1 in every session, without gaps. `files` is a JSON array of paths. `first_event` is the
-- number of the first event that can belong to the turn.
CREATE TABLE turns (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    prompt TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '[]',
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
    first_event INTEGER,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turns_by_idempotency ON turns (session, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_under_way ON turns (session) WHERE state IN ('queued', 'running');

-- Events are written far more often than they are read, from many sessions at once. If they were stored in the order of
-- their sessions, each one would change a page of its own, which is encrypted and synced whole; in insertion order many
-- share a page. The single index finds them by number. A turn stores the number it began with, so its events need no
-- other index. The writer thread assigns the numbers, which keeps them unique and without gaps; it finds the last one
-- in the index, because a counter in the session's row would rewrite that row, with all its texts, on every event.
-- `fence` is the fence of the lease under which the event was written.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    turn INTEGER,
    body TEXT NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX events_by_number ON events (session, seq, turn);

-- Usage per app and day on which turns ended (UTC, days since 1970), with the number of turns and how many of them
-- failed. It outlives the sessions.
CREATE TABLE usage (
    app TEXT NOT NULL,
    day INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_read_tokens INTEGER NOT NULL,
    cached_write_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (app, day)
) STRICT, WITHOUT ROWID;

-- Finished turns that the memory has not stored yet.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- Actions of the admin. `detail` is a JSON object.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

-- `heartbeat_at` is in microseconds since 1970 by this database's clock.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    heartbeat_at INTEGER NOT NULL
) STRICT;
