-- Times are microseconds since 1970 (UTC). A principal (`speaker`) is '' for the owner of the home, else an app's name.
-- Every path from a query to a turn goes through a project of that principal or names the principal itself.
CREATE TABLE projects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    speaker TEXT NOT NULL,
    root TEXT NOT NULL,
    UNIQUE (speaker, root)
) STRICT;

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    speaker TEXT NOT NULL,
    name TEXT NOT NULL,
    client TEXT NOT NULL,
    project INTEGER NOT NULL REFERENCES projects (id),
    started INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    UNIQUE (speaker, name)
) STRICT;
CREATE INDEX sessions_of_project ON sessions (project, ended);

-- `words` is the digest of the turn's original words. The names of a turn: `key` is the digest of its record's id,
-- `answer` of its position as an answer, `nth` its number among equal turns. Each is absent until a source that knows
-- it has delivered it.
CREATE TABLE turns (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    speaker TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (id),
    project INTEGER NOT NULL REFERENCES projects (id),
    worktree TEXT NOT NULL,
    key BLOB,
    answer BLOB,
    nth INTEGER,
    words BLOB NOT NULL,
    role TEXT NOT NULL,
    tier TEXT NOT NULL,
    text TEXT NOT NULL,
    sealed BLOB,
    cue TEXT,
    ts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    client TEXT NOT NULL,
    source TEXT NOT NULL,
    superseded_by TEXT,
    supersedes TEXT,
    rules INTEGER NOT NULL,
    UNIQUE (speaker, id)
) STRICT;
CREATE UNIQUE INDEX turns_by_key ON turns (speaker, key) WHERE key IS NOT NULL;
CREATE INDEX turns_by_words ON turns (session, words);
CREATE UNIQUE INDEX turns_by_answer ON turns (speaker, answer) WHERE answer IS NOT NULL;
CREATE INDEX turns_of_session ON turns (session, at, seq);
CREATE INDEX turns_of_project ON turns (project, at, seq);
CREATE INDEX turns_standing ON turns (project, ts) WHERE tier = 'semantic';
CREATE INDEX turns_of_speaker ON turns (speaker, at, seq);
CREATE INDEX turns_by_rules ON turns (rules);
CREATE INDEX turns_sealed ON turns (speaker) WHERE sealed IS NOT NULL;
CREATE INDEX turns_superseded ON turns (speaker, superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX turns_superseding ON turns (speaker, supersedes) WHERE supersedes IS NOT NULL;

-- Clustered by project, so that one project's vectors are read in one sweep.
CREATE TABLE vectors (
    project INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (project, seq)
) STRICT, WITHOUT ROWID;

-- Enough to recognise a forgotten turn and to refuse it when it comes again; nothing to read.
CREATE TABLE forgotten (
    speaker TEXT NOT NULL,
    session TEXT NOT NULL,
    words BLOB NOT NULL,
    key BLOB,
    answer BLOB,
    nth INTEGER
) STRICT;
CREATE INDEX forgotten_by_key ON forgotten (speaker, key) WHERE key IS NOT NULL;
CREATE INDEX forgotten_by_answer ON forgotten (speaker, answer) WHERE answer IS NOT NULL;
CREATE INDEX forgotten_by_words ON forgotten (speaker, session, words);
CREATE TABLE forgotten_sessions (
    speaker TEXT NOT NULL,
    session TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (speaker, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE imports (
    path BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    modified INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

-- The index. A row of `postings` is a posting block: turns of one project that have a term, packed by the index crate.
-- `first` is the first turn of the block, and blocks of a term do not overlap. A row whose `first` is 0 counts the turns
-- that have the term.
CREATE TABLE postings (
    term TEXT NOT NULL,
    project INTEGER NOT NULL,
    first INTEGER NOT NULL,
    run BLOB NOT NULL,
    PRIMARY KEY (term, project, first)
) STRICT, WITHOUT ROWID;

-- Document metadata of indexed turns: small rows, cached in memory as a whole.
CREATE TABLE indexed (
    seq INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    session INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;

-- The terms of a turn, to merge it into the index and to remove it again.
CREATE TABLE terms (
    seq INTEGER PRIMARY KEY,
    terms TEXT NOT NULL
) STRICT;

-- The sign code of a vector, a bit per dimension: small enough to cache those of all turns in memory.
CREATE TABLE codes (
    seq INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    code BLOB NOT NULL
) STRICT;

-- Sums over the indexed turns.
CREATE TABLE index_projects (
    project INTEGER PRIMARY KEY,
    turns INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;
CREATE TABLE index_sessions (
    session INTEGER PRIMARY KEY,
    turns INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;

-- The newest turns are merged into `postings` many at once, because every changed page is encrypted again. Turns up to
-- `merged` are there; later ones are found by their rows in `terms`. During a merge, the terms up to `done` are merged up
-- to `next`; otherwise `next` is `merged`. `token` changes with every step, so that a process that caches part of a merge
-- knows whether its last step was committed.
CREATE TABLE index_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    merged INTEGER NOT NULL,
    next INTEGER NOT NULL,
    done TEXT NOT NULL,
    token INTEGER NOT NULL
) STRICT;
INSERT INTO index_state (id, merged, next, done, token) VALUES (1, 0, 0, '', 0);

-- Turns of the index that were changed or removed, so that caches notice. -1 stands for all turns.
CREATE TABLE index_changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL
) STRICT;

-- Models whose vectors are stored in addition to those of the built-in table, which are in `vectors`. `embedded` is the
-- number of turns that have one.
CREATE TABLE vector_kinds (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    width INTEGER NOT NULL,
    embedded INTEGER NOT NULL DEFAULT 0
) STRICT;

-- `code` is the vector's row in `model_codes`.
CREATE TABLE model_vectors (
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    code INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (seq, kind)
) STRICT, WITHOUT ROWID;

-- The sign codes of these vectors in insertion order, which is not that of the turns.
CREATE TABLE model_codes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    project INTEGER NOT NULL,
    code BLOB NOT NULL
) STRICT;
