-- Events are written far more often than they are read, from many sessions at once. Where they lay in the order of
-- their sessions, each one changed pages of its own, which are encrypted and synced whole; in the order in which they
-- come many share one. The one index finds them by their number; a turn knows the number it began with, so that its
-- events need no other. Numbers are given out under the lock of the writer, which keeps them unique, and the last one
-- is found in the index: a count in the session's row would mean to write that row, with all its texts, every time.
CREATE TABLE events_as_they_come (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    turn INTEGER,
    body TEXT NOT NULL
) STRICT;
INSERT INTO events_as_they_come (session, seq, at, kind, turn, body)
    SELECT session, seq, at, kind, turn, body FROM events ORDER BY session, seq;
DROP TABLE events;
ALTER TABLE events_as_they_come RENAME TO events;
CREATE INDEX events_by_number ON events (session, seq, turn);
ALTER TABLE sessions DROP COLUMN event_count;
ALTER TABLE turns ADD COLUMN first_event INTEGER;
