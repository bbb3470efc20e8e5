-- What nodes want of each other: only the holder of a session can do it, whoever that is by then.
CREATE TABLE hob.errands (
    id text COLLATE "C" PRIMARY KEY,
    wanted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    app text COLLATE "C" NOT NULL,
    session uuid NOT NULL,
    body text NOT NULL,
    answer text
);
CREATE INDEX errands_open ON hob.errands (session) WHERE answer IS NULL;
CREATE INDEX heads_held ON hob.heads (holder) WHERE closed_at IS NULL;

-- The turns of the last minute, over all nodes.
CREATE TABLE hob.pace (
    app text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL
);
CREATE INDEX pace_of_app ON hob.pace (app, at);

-- Uploaded files in parts: a turn may run on another node than its file came to.
CREATE TABLE hob.files (
    app text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    part integer NOT NULL,
    last boolean NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    name text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (app, id, part)
);
CREATE INDEX files_by_age ON hob.files (stored_at);

-- Who carries it to the memory, and since when: another may, when that one has not come back.
ALTER TABLE hob.outbox ADD COLUMN taken_by text;
ALTER TABLE hob.outbox ADD COLUMN taken_at timestamptz;

ALTER TABLE hob.errands ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.pace ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.files ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.errands USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.pace USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.files USING (app = (SELECT hob.app_of_role()));
