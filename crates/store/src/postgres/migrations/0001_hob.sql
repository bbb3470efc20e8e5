-- The ledger. Times are microseconds since 1970 (UTC) unless a comment says otherwise. Texts from outside store U+0000
-- escaped (see text.rs). Every row names its app, for the row-level security policies at the end.
CREATE TABLE hob.apps (
    name text COLLATE "C" PRIMARY KEY,
    token_hash text NOT NULL UNIQUE,
    created_at text NOT NULL
);

-- The columns of a session that never change.
CREATE TABLE hob.sessions (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    app text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    meta text NOT NULL,
    cwd text NOT NULL,
    model text,
    system text,
    permissions text NOT NULL,
    mcp_servers text NOT NULL
);
CREATE INDEX sessions_of_app ON hob.sessions (app, created_at, id);

-- The columns of a session that change, some with every event: a narrow row on a page with room for its next versions.
-- The columns that change often are not indexed, so an update stays on its page and touches no index. Every change to
-- a session locks this row first: that keeps event numbers without gaps and rules out deadlocks.
-- `holder` is the node that holds the lease. Every new lease increments `fence`, and a write under an older fence is
-- refused.
CREATE TABLE hob.heads (
    session uuid PRIMARY KEY REFERENCES hob.sessions (id) ON DELETE CASCADE,
    last_event bigint NOT NULL,
    turn_count bigint NOT NULL,
    last_turn_at bigint,
    closed_at bigint,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cached_read_tokens bigint NOT NULL DEFAULT 0,
    cached_write_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision NOT NULL DEFAULT 0,
    app text COLLATE "C" NOT NULL,
    agent_session text,
    fence bigint NOT NULL DEFAULT 0,
    holder text
) WITH (fillfactor = 50);
CREATE INDEX heads_open ON hob.heads (session) WHERE closed_at IS NULL;
CREATE INDEX heads_closed ON hob.heads (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX heads_leased ON hob.heads (holder) WHERE closed_at IS NULL;

-- Turns are numbered from 1 in every session, without gaps. `files` is a JSON array of paths. `first_event` is the
-- number of the first event that can belong to the turn.
CREATE TABLE hob.turns (
    session uuid NOT NULL REFERENCES hob.sessions (id) ON DELETE CASCADE,
    number bigint NOT NULL,
    queued_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    first_event bigint,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cached_read_tokens bigint NOT NULL DEFAULT 0,
    cached_write_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision NOT NULL DEFAULT 0,
    app text COLLATE "C" NOT NULL,
    state text NOT NULL,
    prompt text NOT NULL,
    files text NOT NULL DEFAULT '[]',
    text text NOT NULL DEFAULT '',
    stop_reason text,
    error text,
    -- The SHA-256 of the key, because an index cannot hold a long text.
    idempotency_key text,
    request_digest text,
    PRIMARY KEY (session, number)
);
CREATE UNIQUE INDEX turns_by_idempotency ON hob.turns (session, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_under_way ON hob.turns (session, number) WHERE state IN ('queued', 'running');

-- There is no reference to the session, because it would cost a lookup per event. The lock on the head does the same.
-- `fence` is the fence of the lease under which the event was written.
CREATE TABLE hob.events (
    session uuid NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    turn bigint,
    app text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (session, seq)
);

-- Usage per app and day (UTC, days since 1970). Turns of one app that end at the same time would wait for each other's
-- commit if they all changed one row, so a day has several rows (`part`) and their sum counts.
CREATE TABLE hob.usage (
    app text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    part bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_read_tokens bigint NOT NULL,
    cached_write_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    turns bigint NOT NULL,
    failed bigint NOT NULL,
    PRIMARY KEY (app, day, part)
) WITH (fillfactor = 50);

-- Finished turns that the memory has not stored yet. `taken_by` is the node that is storing a row since `taken_at`;
-- another node may take it over when that one does not finish.
CREATE TABLE hob.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    body text NOT NULL,
    taken_by text,
    taken_at timestamptz
);

-- Actions of the admin. `detail` is a JSON object.
CREATE TABLE hob.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL
);

-- The cluster.
CREATE TABLE hob.nodes (
    id text COLLATE "C" PRIMARY KEY,
    heartbeat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Commands that only the lease holder of a session can run, enqueued by other nodes.
CREATE TABLE hob.commands (
    id text COLLATE "C" PRIMARY KEY,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    app text COLLATE "C" NOT NULL,
    session uuid NOT NULL,
    body text NOT NULL,
    outcome text
);
CREATE INDEX commands_pending ON hob.commands (session) WHERE outcome IS NULL;

-- The starts of turns in the last minute, over all nodes.
CREATE TABLE hob.pace (
    app text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL
);
CREATE INDEX pace_of_app ON hob.pace (app, at);

-- Uploaded files in parts: a turn may run on another node than the one that received its file.
CREATE TABLE hob.files (
    app text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    part integer NOT NULL,
    last boolean NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    name text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (app, id, part)
);
CREATE INDEX files_by_age ON hob.files (stored_at);

-- The memory. A principal (`speaker`) is '' for the owner, else an app's name. Names (of projects, sessions, turns) and
-- bodies are bytes: sealed under a key derived from the data key, or in clear where `encrypted` is false; equal names are
-- equal bytes. Lookup columns (keys of names, of turns, of their words, and terms) are keyed hashes in any case. The
-- columns ending in `_kept` hold the digest behind such a hash, sealed, so that a memory can be migrated to SQLite.
-- See docs/postgresql.md.
CREATE EXTENSION IF NOT EXISTS vector;

-- Every transaction that stores, changes or removes turns locks this row first. So numbers are assigned in commit order,
-- and a reader that has read up to a number has missed none before it. `moving` is true while a migration into this
-- memory is incomplete: nothing else may use it then.
CREATE TABLE hob.memory_state (
    id integer PRIMARY KEY CHECK (id = 1),
    last_seq bigint NOT NULL DEFAULT 0,
    last_project bigint NOT NULL DEFAULT 0,
    last_session bigint NOT NULL DEFAULT 0,
    encrypted boolean NOT NULL,
    key_check bytea NOT NULL,
    moving boolean NOT NULL DEFAULT false
);

-- Every transaction that changes `memory_runs` or `memory_codes` locks this row first, after `memory_state` where it
-- needs both. Turns up to `merged` are in posting blocks, except for `changed` turns that changed since. A merge in
-- progress has reached `done_project` and `done_term` with turns up to `next`; otherwise these are 0. The sign codes of
-- turns up to `coded` are in `memory_codes`; `stamp` is the stamp of the latest row there.
CREATE TABLE hob.memory_merge (
    id integer PRIMARY KEY CHECK (id = 1),
    merged bigint NOT NULL,
    next bigint NOT NULL,
    done_project bigint NOT NULL,
    done_term bigint NOT NULL,
    changed bigint NOT NULL,
    coded bigint NOT NULL DEFAULT 0,
    stamp bigint NOT NULL DEFAULT 1
);
INSERT INTO hob.memory_merge (id, merged, next, done_project, done_term, changed) VALUES (1, 0, 0, 0, 0, 0);

-- With sums over the turns of the project, and the number of sessions whose last turn is in it.
CREATE TABLE hob.memory_projects (
    id bigint PRIMARY KEY,
    turns bigint NOT NULL,
    length bigint NOT NULL,
    sessions bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    root_key bytea NOT NULL,
    root bytea NOT NULL,
    UNIQUE (speaker, root_key)
) WITH (fillfactor = 70);

CREATE TABLE hob.memory_sessions (
    id bigint PRIMARY KEY,
    project bigint NOT NULL,
    started bigint NOT NULL,
    ended bigint NOT NULL,
    turns bigint NOT NULL,
    length bigint NOT NULL,
    note boolean NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    client text NOT NULL,
    name_key bytea NOT NULL,
    name bytea NOT NULL,
    UNIQUE (speaker, name_key)
) WITH (fillfactor = 70);
CREATE INDEX memory_sessions_of_project ON hob.memory_sessions (project, ended);

-- `body` is the text, its cue and its working tree. `chars` is the number of characters of the text. `terms` is what it
-- takes to remove the turn from the index. The names of a turn (`key`, `answer`, `nth`) are as in SQLite: each is absent
-- until a source that knows it has delivered it.
CREATE TABLE hob.memory_turns (
    seq bigint PRIMARY KEY,
    session bigint NOT NULL,
    project bigint NOT NULL,
    ts bigint NOT NULL,
    at bigint NOT NULL,
    nth bigint,
    chars integer NOT NULL,
    rules integer NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    role text NOT NULL,
    tier text NOT NULL,
    client text NOT NULL,
    source text NOT NULL,
    id_key bytea NOT NULL,
    id bytea NOT NULL,
    key bytea,
    answer bytea,
    words bytea NOT NULL,
    superseded_by bytea,
    supersedes bytea,
    body bytea NOT NULL,
    sealed bytea,
    terms bytea NOT NULL,
    key_kept bytea,
    answer_kept bytea,
    words_kept bytea,
    UNIQUE (speaker, id_key)
);
-- Sealed bytes do not compress.
ALTER TABLE hob.memory_turns ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX memory_turns_by_key ON hob.memory_turns (speaker, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX memory_turns_by_answer ON hob.memory_turns (speaker, answer) WHERE answer IS NOT NULL;
CREATE INDEX memory_turns_by_words ON hob.memory_turns (session, words);
CREATE INDEX memory_turns_of_session ON hob.memory_turns (session, at, seq);
CREATE INDEX memory_turns_of_project ON hob.memory_turns (project, at, seq);
CREATE INDEX memory_turns_of_speaker ON hob.memory_turns (speaker, at, seq);
CREATE INDEX memory_turns_standing ON hob.memory_turns (project, ts) WHERE tier = 'semantic';
CREATE INDEX memory_turns_by_rules ON hob.memory_turns (rules);
CREATE INDEX memory_turns_sealed ON hob.memory_turns (speaker) WHERE sealed IS NOT NULL;
CREATE INDEX memory_turns_superseded ON hob.memory_turns (speaker, superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX memory_turns_superseding ON hob.memory_turns (speaker, supersedes) WHERE supersedes IS NOT NULL;

-- Document metadata that recall reads: narrow rows, apart from the bodies.
CREATE TABLE hob.memory_standing (
    seq bigint PRIMARY KEY,
    session bigint NOT NULL,
    project bigint NOT NULL,
    ts bigint NOT NULL,
    at bigint NOT NULL,
    length integer NOT NULL,
    speaker text COLLATE "C" NOT NULL
);
CREATE INDEX memory_standing_of_session ON hob.memory_standing (session, at, seq);
CREATE INDEX memory_standing_by_time ON hob.memory_standing (project, ts);

-- `code` is the sign code of a turn's vector, permuted and flipped under the key; it is absent for a zero vector. The
-- room on the page is for a `ts` that changes, so that no index has to.
CREATE TABLE hob.memory_vectors (
    seq bigint PRIMARY KEY,
    project bigint NOT NULL,
    session bigint NOT NULL,
    ts bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    code bit(256),
    vector bytea NOT NULL
) WITH (fillfactor = 90);

-- The sign codes of `memory_vectors`, many per row: for each turn its number (8 bytes, big-endian) and its code (32
-- bytes), in order. Nodes cache what they have read and read a row again when its `stamp` has changed.
CREATE TABLE hob.memory_codes (
    project bigint NOT NULL,
    first bigint NOT NULL,
    stamp bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    codes bytea NOT NULL,
    PRIMARY KEY (project, first)
);
ALTER TABLE hob.memory_codes ALTER COLUMN codes SET STORAGE EXTERNAL;

-- The index. `first` is the first turn of a posting block, which is packed as in SQLite; a row whose `first` is 0 counts
-- the turns that have the term, if the term has more than one block.
CREATE TABLE hob.memory_runs (
    project bigint NOT NULL,
    term bigint NOT NULL,
    first bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    run bytea NOT NULL,
    PRIMARY KEY (project, term, first)
) WITH (fillfactor = 80);
ALTER TABLE hob.memory_runs ALTER COLUMN run SET STORAGE PLAIN;

-- Posting blocks that are not merged yet: the postings of a term that were stored in one batch are one row, so that a
-- query reads a row per batch and not per turn. Every posting is in one of the two tables. Every query reads this one,
-- and all of its rows are deleted in time, so it is vacuumed often.
CREATE TABLE hob.memory_recent (
    project bigint NOT NULL,
    term bigint NOT NULL,
    first bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    run bytea NOT NULL,
    PRIMARY KEY (project, term, first)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE hob.memory_recent ALTER COLUMN run SET STORAGE PLAIN;

-- Enough to recognise a forgotten turn and to refuse it when it comes again; nothing to read.
CREATE TABLE hob.memory_forgotten (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nth bigint,
    speaker text COLLATE "C" NOT NULL,
    session bytea NOT NULL,
    words bytea NOT NULL,
    key bytea,
    answer bytea,
    name bytea,
    key_kept bytea,
    answer_kept bytea,
    words_kept bytea
);
CREATE INDEX memory_forgotten_by_key ON hob.memory_forgotten (speaker, key) WHERE key IS NOT NULL;
CREATE INDEX memory_forgotten_by_answer ON hob.memory_forgotten (speaker, answer) WHERE answer IS NOT NULL;
CREATE INDEX memory_forgotten_by_words ON hob.memory_forgotten (speaker, session, words);
CREATE TABLE hob.memory_forgotten_sessions (
    speaker text COLLATE "C" NOT NULL,
    session bytea NOT NULL,
    until bigint NOT NULL,
    name bytea,
    PRIMARY KEY (speaker, session)
);

CREATE TABLE hob.memory_imports (
    path bytea PRIMARY KEY,
    size bigint NOT NULL,
    modified bigint NOT NULL,
    path_kept bytea
);
CREATE TABLE hob.memory_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    kind text NOT NULL,
    detail bytea NOT NULL
);

-- Vectors of a model that the user has chosen, in addition to those of the built-in table.
CREATE TABLE hob.memory_kinds (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    width bigint NOT NULL,
    embedded bigint NOT NULL DEFAULT 0
);
CREATE TABLE hob.memory_model_vectors (
    seq bigint NOT NULL,
    kind bigint NOT NULL,
    project bigint NOT NULL,
    session bigint NOT NULL,
    ts bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    code bit(384),
    vector bytea NOT NULL,
    PRIMARY KEY (seq, kind)
) WITH (fillfactor = 90);
CREATE INDEX memory_model_vectors_of_project ON hob.memory_model_vectors (project);
CREATE INDEX memory_model_vectors_near ON hob.memory_model_vectors USING hnsw (code bit_hamming_ops);

-- Row-level security: a database role other than Hob's own sees and changes only the rows of the app it is assigned to
-- here. The policies use the role that logged in, which a client cannot change, and not a setting, which it can.
-- Tables without a policy are invisible to such a role.
CREATE TABLE hob.app_roles (
    role text PRIMARY KEY,
    app text COLLATE "C" NOT NULL
);
CREATE FUNCTION hob.app_of_role() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS 'SELECT app FROM hob.app_roles WHERE role = session_user';

ALTER TABLE hob.apps ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.app_roles ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.nodes ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.commands ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.pace ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.files ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_merge ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_projects ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_standing ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_codes ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_recent ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_forgotten ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_forgotten_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_imports ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_kinds ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_model_vectors ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.apps USING (name = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.sessions USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.heads USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.turns USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.events USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.usage USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.outbox USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.commands USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.pace USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.files USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_projects USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_sessions USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_turns USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_standing USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_vectors USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_codes USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_runs USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_recent USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_forgotten USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_forgotten_sessions USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_model_vectors USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
