-- A forgotten turn is hidden first and erased later. Until then `turn` is its record id and `body` is what restores it.
ALTER TABLE forgotten ADD COLUMN turn TEXT;
ALTER TABLE forgotten ADD COLUMN hidden_at INTEGER;
ALTER TABLE forgotten ADD COLUMN body BLOB;
CREATE INDEX forgotten_hidden ON forgotten (hidden_at) WHERE body IS NOT NULL;
CREATE INDEX forgotten_by_turn ON forgotten (speaker, turn) WHERE body IS NOT NULL;
