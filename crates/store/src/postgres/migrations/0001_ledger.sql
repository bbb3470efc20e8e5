-- Times are microseconds since 1970. Numbers of turns and events begin with 1 in every session and have no gap. Texts
-- that may be anything hold U+0000 escaped (see text.rs). Every row names its app, for the policies at the end.
CREATE TABLE hob.apps (
    name text COLLATE "C" PRIMARY KEY,
    token_hash text NOT NULL UNIQUE,
    created_at text NOT NULL
);

-- What of a session never changes.
CREATE TABLE hob.sessions (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    app text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    meta text NOT NULL,
    cwd text NOT NULL,
    model text,
    system text,
    permissions text NOT NULL,
    mcp_servers text NOT NULL
);
CREATE INDEX sessions_of_app ON hob.sessions (app, created_at, id);

-- What of a session changes, with every event: a narrow row on a page with room for its next versions, none of whose
-- often changed columns is indexed, so that a change stays on its page and in no index. Whoever changes anything of a
-- session locks this row first: it is what keeps numbers without gaps, and nobody waits for another in a circle.
CREATE TABLE hob.heads (
    session uuid PRIMARY KEY REFERENCES hob.sessions (id) ON DELETE CASCADE,
    last_event bigint NOT NULL,
    turn_count bigint NOT NULL,
    last_turn_at bigint,
    closed_at bigint,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cached_read_tokens bigint NOT NULL DEFAULT 0,
    cached_write_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision NOT NULL DEFAULT 0,
    app text COLLATE "C" NOT NULL,
    agent_session text
) WITH (fillfactor = 50);
CREATE INDEX heads_open ON hob.heads (session) WHERE closed_at IS NULL;
CREATE INDEX heads_closed ON hob.heads (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE hob.turns (
    session uuid NOT NULL REFERENCES hob.sessions (id) ON DELETE CASCADE,
    number bigint NOT NULL,
    queued_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    first_event bigint,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cached_read_tokens bigint NOT NULL DEFAULT 0,
    cached_write_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision NOT NULL DEFAULT 0,
    app text COLLATE "C" NOT NULL,
    state text NOT NULL,
    prompt text NOT NULL,
    text text NOT NULL DEFAULT '',
    stop_reason text,
    error text,
    -- The key's SHA-256, since an index takes no long text.
    idempotency_key text,
    request_digest text,
    PRIMARY KEY (session, number)
);
CREATE UNIQUE INDEX turns_by_idempotency ON hob.turns (session, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_under_way ON hob.turns (session, number) WHERE state IN ('queued', 'running');

-- No reference to the session: it would be looked up for every event. The lock on the head does the same.
CREATE TABLE hob.events (
    session uuid NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    turn bigint,
    app text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, seq)
);

-- By day (UTC, days since 1970). Turns of one app that end at once would wait for each other's commit if they all
-- changed one row, so there are several, and the sum counts.
CREATE TABLE hob.usage (
    app text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    part bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_read_tokens bigint NOT NULL,
    cached_write_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    turns bigint NOT NULL,
    failed bigint NOT NULL,
    PRIMARY KEY (app, day, part)
) WITH (fillfactor = 50);

CREATE TABLE hob.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    body text NOT NULL
);

CREATE TABLE hob.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL
);

-- The second wall: a database role that is not Hob's own sees and changes rows of the app that it stands for here, and
-- no others. It goes by the role that signed in, which a client can't change, and not by a setting, which it can.
CREATE TABLE hob.app_roles (
    role text PRIMARY KEY,
    app text COLLATE "C" NOT NULL
);
CREATE FUNCTION hob.app_of_role() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS 'SELECT app FROM hob.app_roles WHERE role = session_user';

ALTER TABLE hob.apps ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE hob.app_roles ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.apps USING (name = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.sessions USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.heads USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.turns USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.events USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.usage USING (app = (SELECT hob.app_of_role()));
CREATE POLICY one_app ON hob.outbox USING (app = (SELECT hob.app_of_role()));
