-- The latest start of a server on this database. A database of a copy of the home that was used by itself has another one.
CREATE TABLE home_run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    run TEXT NOT NULL
) STRICT;
