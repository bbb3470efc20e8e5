-- What vectors are made by, beside the built-in table, whose vectors stay in `vectors`. `embedded` is
-- how many turns have one of the kind.
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

-- The signs of these vectors in the order in which they came, which is not that of the turns.
CREATE TABLE model_codes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    project INTEGER NOT NULL,
    code BLOB NOT NULL
) STRICT;
