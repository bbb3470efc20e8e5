-- An entry that could not be stored again and again, or at whose storing the server ended, is set aside for good.
ALTER TABLE outbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN set_aside INTEGER NOT NULL DEFAULT 0;
