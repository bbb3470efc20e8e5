-- Responses of /v1/responses. `input` and `body` are JSON; times are microseconds since 1970 (UTC).
CREATE TABLE hob.responses (
    app text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    input text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (app, id)
);
CREATE INDEX responses_by_time ON hob.responses (created_at);
ALTER TABLE hob.responses ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_app ON hob.responses USING (app = (SELECT hob.app_of_role()));
