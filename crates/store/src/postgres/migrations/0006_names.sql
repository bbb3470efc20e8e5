-- What it takes to move a memory back into a file, where digests lie as they are: the digest behind each code, hidden under
-- the data key, and the names of sessions that were forgotten, as they lie in `memory_sessions`. Absent in rows from before.
ALTER TABLE hob.memory_turns
    ADD COLUMN key_kept bytea,
    ADD COLUMN answer_kept bytea,
    ADD COLUMN words_kept bytea;
ALTER TABLE hob.memory_forgotten
    ADD COLUMN name bytea,
    ADD COLUMN key_kept bytea,
    ADD COLUMN answer_kept bytea,
    ADD COLUMN words_kept bytea;
ALTER TABLE hob.memory_forgotten_sessions ADD COLUMN name bytea;
ALTER TABLE hob.memory_imports ADD COLUMN path_kept bytea;

-- Whether a move into this memory has begun and not ended: nobody uses it meanwhile.
ALTER TABLE hob.memory_state ADD COLUMN moving boolean NOT NULL DEFAULT false;
