-- An entry that could not be stored again and again, or at whose storing the server ended, is set aside for good.
ALTER TABLE hob.outbox ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE hob.outbox ADD COLUMN set_aside boolean NOT NULL DEFAULT false;
