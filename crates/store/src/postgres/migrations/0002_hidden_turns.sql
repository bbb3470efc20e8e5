-- A forgotten turn is hidden first and erased later. Until then `turn` is the hash of its record id and `body` is what
-- restores it.
ALTER TABLE hob.memory_forgotten ADD COLUMN turn bytea, ADD COLUMN hidden_at bigint, ADD COLUMN body bytea;
ALTER TABLE hob.memory_forgotten ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX memory_forgotten_hidden ON hob.memory_forgotten (hidden_at) WHERE body IS NOT NULL;
CREATE INDEX memory_forgotten_by_turn ON hob.memory_forgotten (speaker, turn) WHERE body IS NOT NULL;
