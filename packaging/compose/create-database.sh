#!/bin/sh
# Makes Hob's role an ordinary one, so that row-level security binds it.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$(cat /run/secrets/postgres)" -U postgres <<'SQL'
CREATE ROLE hob LOGIN PASSWORD :'password';
CREATE DATABASE hob OWNER hob;
\connect hob
CREATE EXTENSION vector;
SQL
