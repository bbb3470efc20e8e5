-- How many turns ended on each day, and how many of them failed. What is counted outlives its sessions.
ALTER TABLE usage ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;

-- Turns that ended before they were counted.
INSERT INTO usage (app, day, input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, turns, failed)
    SELECT app, ended_at / 86400000000, 0, 0, 0, 0, 0.0, count(*), sum(state NOT IN ('finished', 'cancelled'))
    FROM turns t JOIN sessions s ON s.id = t.session WHERE ended_at IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (app, day) DO UPDATE SET turns = excluded.turns, failed = excluded.failed;
