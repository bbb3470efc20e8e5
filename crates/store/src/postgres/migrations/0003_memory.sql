-- The memory. A speaker is '' for the owner, else an app's name. Names (of projects, sessions, turns) and bodies are bytes:
-- sealed under a key that follows from the data key, or as they are where `encrypted` is false; equal names are equal bytes.
-- What rows are found by (keys of names, of turns, of their words, and terms) are codes under that key in any case. Times
-- are microseconds since 1970. See docs/postgresql.md.
CREATE EXTENSION IF NOT EXISTS vector;

-- Whoever stores, changes or removes turns locks this row first. So numbers are given in the order of commits, and whoever
-- has read up to one has missed none before it.
CREATE TABLE hob.memory_state (
    id integer PRIMARY KEY CHECK (id = 1),
    last_seq bigint NOT NULL DEFAULT 0,
    last_project bigint NOT NULL DEFAULT 0,
    last_session bigint NOT NULL DEFAULT 0,
    encrypted boolean NOT NULL,
    key_check bytea NOT NULL
);

-- Whoever changes `memory_runs` locks this row first, behind the other where it needs both. Turns up to `merged` are in
-- runs, but `changed` ones that have changed since. A merge under way has come to `done_project` and `done_term` with turns
-- up to `next`; with none under way these are 0.
CREATE TABLE hob.memory_merge (
    id integer PRIMARY KEY CHECK (id = 1),
    merged bigint NOT NULL,
    next bigint NOT NULL,
    done_project bigint NOT NULL,
    done_term bigint NOT NULL,
    changed bigint NOT NULL
);
INSERT INTO hob.memory_merge VALUES (1, 0, 0, 0, 0, 0);

-- With sums over its turns, and how many sessions were last in it.
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

-- `body` is the text, its cue and its working tree. `chars` is how many characters the text has. `terms` is what it takes
-- to remove the turn from the index. The names a turn is known by are as in SQLite: each is absent until a way that knows
-- it has brought it.
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
    UNIQUE (speaker, id_key)
);
-- What is sealed can't be pressed together.
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

-- What a question looks at: narrow rows, apart from the bodies.
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

-- `code` is the signs of a turn's vector, in an order and with flips that follow from the key; it is absent where the vector
-- points nowhere. Room on the page is for a `ts` that changes, so that no index has to.
CREATE TABLE hob.memory_vectors (
    seq bigint PRIMARY KEY,
    project bigint NOT NULL,
    session bigint NOT NULL,
    ts bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    code bit(256),
    vector bytea NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX memory_vectors_of_project ON hob.memory_vectors (project);
CREATE INDEX memory_vectors_near ON hob.memory_vectors USING hnsw (code bit_hamming_ops);

-- The index. `first` is the first turn of a run, which is packed as in SQLite; a row whose `first` is 0 says how many turns
-- have the term, where it has more than one run. Postings of turns that are not merged yet lie one by one in
-- `memory_recent`: each is in one of the two. Every question reads there, and all of it is deleted in time, so it is
-- vacuumed often.
CREATE TABLE hob.memory_runs (
    project bigint NOT NULL,
    term bigint NOT NULL,
    first bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    run bytea NOT NULL,
    PRIMARY KEY (project, term, first)
) WITH (fillfactor = 80);
ALTER TABLE hob.memory_runs ALTER COLUMN run SET STORAGE PLAIN;
CREATE TABLE hob.memory_recent (
    project bigint NOT NULL,
    term bigint NOT NULL,
    seq bigint NOT NULL,
    session bigint NOT NULL,
    times smallint NOT NULL,
    length smallint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, term, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- What was forgotten stays unknown: enough to recognise it, nothing to read.
CREATE TABLE hob.memory_forgotten (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    nth bigint,
    speaker text COLLATE "C" NOT NULL,
    session bytea NOT NULL,
    words bytea NOT NULL,
    key bytea,
    answer bytea
);
CREATE INDEX memory_forgotten_by_key ON hob.memory_forgotten (speaker, key) WHERE key IS NOT NULL;
CREATE INDEX memory_forgotten_by_answer ON hob.memory_forgotten (speaker, answer) WHERE answer IS NOT NULL;
CREATE INDEX memory_forgotten_by_words ON hob.memory_forgotten (speaker, session, words);
CREATE TABLE hob.memory_forgotten_sessions (
    speaker text COLLATE "C" NOT NULL,
    session bytea NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (speaker, session)
);

CREATE TABLE hob.memory_imports (
    path bytea PRIMARY KEY,
    size bigint NOT NULL,
    modified bigint NOT NULL
);
CREATE TABLE hob.memory_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    kind text NOT NULL,
    detail bytea NOT NULL
);

-- Vectors of a model that was chosen, beside those of the built-in table.
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

-- The second wall. What belongs to no app is seen by no app's role.
ALTER TABLE hob.memory_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_merge ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_projects ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_standing ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_recent ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_forgotten ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_forgotten_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_imports ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_kinds ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.memory_model_vectors ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.memory_projects USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_sessions USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_turns USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_standing USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_vectors USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_runs USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_recent USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_forgotten USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_forgotten_sessions USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.memory_model_vectors USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
