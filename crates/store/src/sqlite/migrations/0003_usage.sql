-- What turns used: of each session, and of each app by the day on which they ended (UTC, days since 1970).
ALTER TABLE sessions ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cached_read_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cached_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost_usd REAL NOT NULL DEFAULT 0.0;

CREATE TABLE usage (
    app TEXT NOT NULL,
    day INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_read_tokens INTEGER NOT NULL,
    cached_write_tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    PRIMARY KEY (app, day)
) STRICT, WITHOUT ROWID;

-- Turns that ended before there were sums.
UPDATE sessions SET (input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd) = (
    SELECT sum(input_tokens), sum(output_tokens), sum(cached_read_tokens), sum(cached_write_tokens), sum(cost_usd)
    FROM turns WHERE session = sessions.id)
WHERE turn_count > 0;
INSERT INTO usage
    SELECT app, ended_at / 86400000000, sum(t.input_tokens), sum(t.output_tokens), sum(t.cached_read_tokens),
        sum(t.cached_write_tokens), sum(t.cost_usd)
    FROM turns t JOIN sessions s ON s.id = t.session WHERE ended_at IS NOT NULL GROUP BY 1, 2;
