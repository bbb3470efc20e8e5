-- A speaker is '' for the owner of the home, else an app's name. Every path from a question to a turn
-- goes through a project of that speaker or names the speaker itself.
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

-- Times are microseconds since 1970. `words` is the digest of the turn's original words. The names it is
-- known by: `key` is the digest of its record's id, `answer` of its place as an answer, `nth` its number
-- among equal ones; each is absent until a way that knows it has brought it.
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

-- The terms are made by the analyser in the index's own spelling, in which every character that is
-- not an ASCII sign is part of a term.
CREATE VIRTUAL TABLE term_index USING fts5 (terms, scope, tokenize = 'ascii');
INSERT INTO term_index (term_index, rank) VALUES ('secure-delete', 1);

-- Clustered by project, so that one project's vectors are read in one sweep.
CREATE TABLE vectors (
    project INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (project, seq)
) STRICT, WITHOUT ROWID;

-- What was forgotten stays unknown: enough to recognise it, nothing to read.
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
