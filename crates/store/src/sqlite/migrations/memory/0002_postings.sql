-- The index. A row of `postings` is a run of turns of one project that have a term, packed as
-- `postings.rs` says; `first` is the first turn of the run, and runs of a term don't overlap.
CREATE TABLE postings (
    term TEXT NOT NULL,
    project INTEGER NOT NULL,
    first INTEGER NOT NULL,
    run BLOB NOT NULL,
    PRIMARY KEY (term, project, first)
) STRICT, WITHOUT ROWID;

-- What the index knows of a turn. `terms` is what it takes to remove the turn from the index again.
CREATE TABLE indexed (
    seq INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    session INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,
    terms TEXT NOT NULL
) STRICT;
CREATE INDEX indexed_by_time ON indexed (project, ts);

-- The signs of a vector, a bit for each dimension: small enough to hold those of all turns in memory.
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

-- Turns from before are still in `term_index`, each until it has been analysed anew.
