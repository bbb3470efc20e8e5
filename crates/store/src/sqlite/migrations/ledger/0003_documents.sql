-- Responses become one kind of document, next to agents, environments and descriptions of sessions. `input` is empty for
-- the other kinds.
ALTER TABLE responses RENAME TO documents;
ALTER TABLE documents ADD COLUMN kind TEXT NOT NULL DEFAULT 'response';
DROP INDEX responses_by_time;
CREATE INDEX documents_by_time ON documents (kind, created_at);
