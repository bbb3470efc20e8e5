-- Which node a session belongs to. The fence is one higher every time it is taken; what is written under an older one is
-- refused. Every event keeps the fence it was written under.
ALTER TABLE hob.heads ADD COLUMN fence bigint NOT NULL DEFAULT 0;
ALTER TABLE hob.heads ADD COLUMN holder text;
ALTER TABLE hob.events ADD COLUMN fence bigint NOT NULL DEFAULT 0;
CREATE TABLE hob.nodes (
    id text COLLATE "C" PRIMARY KEY,
    beat_at timestamptz NOT NULL,
    address text NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE hob.nodes ENABLE ROW LEVEL SECURITY;
