-- Responses of /v1/responses. `input` and `body` are JSON; times are microseconds since 1970 (UTC).
CREATE TABLE responses (
    app TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    input TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (app, id)
) STRICT;
CREATE INDEX responses_by_time ON responses (created_at);
