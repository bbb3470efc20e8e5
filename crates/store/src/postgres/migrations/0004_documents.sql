-- Responses become one kind of document, next to agents, environments and descriptions of sessions. `input` is empty for
-- the other kinds.
ALTER TABLE hob.responses RENAME TO documents;
ALTER TABLE hob.documents ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT 'response';
DROP INDEX hob.responses_by_time;
CREATE INDEX documents_by_time ON hob.documents (kind, created_at);
