-- Brings schema 4, the last one before the migrations were squashed, to the schema of 0001_memory.sql. Turns that are
-- still in the full-text index of the first build are analysed again by the next rescan, which indexes them.
UPDATE turns SET rules = 0 WHERE seq IN (SELECT rowid FROM term_index);
DROP TABLE term_index;
