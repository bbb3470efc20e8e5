-- Brings schema 7, the last one before the migrations were squashed, to the schema of 0001_ledger.sql.
ALTER TABLE turns ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
ALTER TABLE nodes DROP COLUMN address;
ALTER TABLE nodes RENAME COLUMN beat_at TO heartbeat_at;
