-- The newest turns are merged into `postings` many at once, since every page that changes is enciphered
-- anew. Turns up to `merged` are there; those behind it are found by their rows in `terms`. While a merge is
-- under way, the terms up to `done` are merged up to `next`. With nothing under way `next` is `merged`. `token` is
-- another one after every step, so that whoever holds something of a merge knows whether its last step counted.
CREATE TABLE index_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    merged INTEGER NOT NULL,
    next INTEGER NOT NULL,
    done TEXT NOT NULL,
    token INTEGER NOT NULL
) STRICT;
-- Also of turns that are not in this index yet: when they are, they go straight to their places.
INSERT INTO index_state (id, merged, next, done, token)
    SELECT 1, coalesce(max(seq), 0), coalesce(max(seq), 0), '', 0 FROM turns;

-- What it takes to merge a turn into the index and to take it out again. Apart from `indexed`, which is
-- small then and is held in memory whole.
CREATE TABLE terms (
    seq INTEGER PRIMARY KEY,
    terms TEXT NOT NULL
) STRICT;
INSERT INTO terms (seq, terms) SELECT seq, terms FROM indexed;
DROP INDEX indexed_by_time;
ALTER TABLE indexed DROP COLUMN terms;

-- Turns of the index that were changed or removed, so that whoever holds them in memory notices. -1 is
-- all of them.
CREATE TABLE index_changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL
) STRICT;

-- A row of `postings` whose `first` is 0 says how many turns have the term, as `postings.rs` packs it.
