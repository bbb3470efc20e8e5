-- Which node a session belongs to. The fence is one higher every time it is taken; what is written under an older one is
-- refused. Every event keeps the fence it was written under. Beats are microseconds since 1970 by this database's clock.
ALTER TABLE sessions ADD COLUMN holder TEXT;
ALTER TABLE sessions ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    beat_at INTEGER NOT NULL
) STRICT;
