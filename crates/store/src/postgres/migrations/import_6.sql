-- Brings schema 6, the last one before the migrations were squashed, to the schema of 0001_hob.sql.
ALTER TABLE hob.turns ADD COLUMN files text NOT NULL DEFAULT '[]';
ALTER TABLE hob.nodes DROP COLUMN address;
ALTER TABLE hob.nodes RENAME COLUMN beat_at TO heartbeat_at;
ALTER TABLE hob.errands RENAME TO commands;
ALTER TABLE hob.commands RENAME COLUMN wanted_at TO enqueued_at;
ALTER TABLE hob.commands RENAME COLUMN answer TO outcome;
ALTER TABLE hob.commands RENAME CONSTRAINT errands_pkey TO commands_pkey;
ALTER INDEX hob.errands_open RENAME TO commands_pending;
ALTER INDEX hob.heads_held RENAME TO heads_leased;
ALTER TABLE hob.memory_recent RENAME CONSTRAINT memory_waiting_key TO memory_recent_pkey;

-- Rows of builds before schema 6 lack the sealed digests without which a memory cannot be migrated to SQLite.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM hob.memory_turns WHERE words_kept IS NULL
            OR (key IS NOT NULL AND key_kept IS NULL) OR (answer IS NOT NULL AND answer_kept IS NULL))
        OR EXISTS (SELECT 1 FROM hob.memory_forgotten WHERE name IS NULL OR words_kept IS NULL
            OR (key IS NOT NULL AND key_kept IS NULL) OR (answer IS NOT NULL AND answer_kept IS NULL))
        OR EXISTS (SELECT 1 FROM hob.memory_forgotten_sessions WHERE name IS NULL)
    THEN
        RAISE EXCEPTION 'the memory has turns that an earlier hob stored without their sealed digests; this hob cannot import it';
    END IF;
END
$$;
