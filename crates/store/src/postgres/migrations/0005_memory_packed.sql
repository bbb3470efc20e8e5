-- The memory at a million turns. What waits for a merge lies packed as in `memory_runs`: the postings of a term that came in one
-- go are one row, so that a question reads a row for each time the term came and not for each turn. `first` is the first of them.
CREATE TABLE hob.memory_waiting (
    project bigint NOT NULL,
    term bigint NOT NULL,
    first bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    run bytea NOT NULL,
    CONSTRAINT memory_waiting_key PRIMARY KEY (project, term, first)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE hob.memory_waiting ALTER COLUMN run SET STORAGE PLAIN;
-- A run of one: no distance to the first, the session (zigzag, LEB128), how often, how long.
INSERT INTO hob.memory_waiting (project, term, first, speaker, run)
SELECT r.project, r.term, r.seq, r.speaker,
    '\x00'::bytea || s.packed || set_byte('\x00'::bytea, 0, r.times) || set_byte('\x00'::bytea, 0, r.length)
FROM hob.memory_recent r,
    LATERAL (SELECT decode(string_agg(lpad(to_hex(
            (r.session * 2 >> 7 * n) & 127 | CASE WHEN r.session * 2 >> 7 * (n + 1) > 0 THEN 128 ELSE 0 END),
            2, '0'), '' ORDER BY n), 'hex') AS packed
        FROM generate_series(0, 7) n WHERE n = 0 OR r.session * 2 >> 7 * n > 0) s;
DROP TABLE hob.memory_recent;
ALTER TABLE hob.memory_waiting RENAME TO memory_recent;
ALTER TABLE hob.memory_recent ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.memory_recent USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));

-- The codes of `memory_vectors`, many to a row: for each turn its number (8 bytes, highest first) and its code (32 bytes), in
-- order. Nodes hold what they have read and read again what has another `stamp`. Turns up to `memory_merge.coded` are here;
-- the others' codes are in `memory_vectors` only. Whoever changes this locks `memory_merge` first.
CREATE TABLE hob.memory_codes (
    project bigint NOT NULL,
    first bigint NOT NULL,
    stamp bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    codes bytea NOT NULL,
    PRIMARY KEY (project, first)
);
ALTER TABLE hob.memory_codes ALTER COLUMN codes SET STORAGE EXTERNAL;
ALTER TABLE hob.memory_codes ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.memory_codes USING (speaker <> '' AND speaker = (SELECT hob.app_of_role()));
ALTER TABLE hob.memory_merge ADD COLUMN coded bigint NOT NULL DEFAULT 0;
ALTER TABLE hob.memory_merge ADD COLUMN stamp bigint NOT NULL DEFAULT 1;
INSERT INTO hob.memory_codes (project, first, stamp, speaker, codes)
SELECT project, min(seq), 1, speaker,
    string_agg(int8send(seq) || substring(bit_send(code) FROM 5), NULL ORDER BY seq)
FROM (SELECT project, seq, speaker, code, (row_number() OVER (PARTITION BY project ORDER BY seq) - 1) / 4096 AS part
    FROM hob.memory_vectors WHERE code IS NOT NULL) v
GROUP BY project, speaker, part;
UPDATE hob.memory_merge SET coded = coalesce((SELECT last_seq FROM hob.memory_state WHERE id = 1), 0);

-- The graph took longer to keep than all the rest of storing a turn. The other was for comparing a project's codes one by one.
DROP INDEX hob.memory_vectors_near;
DROP INDEX hob.memory_vectors_of_project;
