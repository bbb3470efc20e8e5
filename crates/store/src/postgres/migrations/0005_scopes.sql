-- Row-level security binds Hob's own role, too, although it owns the tables. A transaction of this role sees and changes
-- only the rows of its scope, which it sets by `SET LOCAL hob.scope`; without a scope it sees nothing. A scope is
-- `app:NAME`, `owner` (the owner's memory), `shared` (rows that belong to no app, which every scope has) or `all`. The
-- setting has no effect for other roles: the policies below are for the role that runs this migration.
CREATE FUNCTION hob.any_in_scope() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(current_setting('hob.scope', true), '') <> '';
CREATE FUNCTION hob.all_in_scope() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(current_setting('hob.scope', true), '') = 'all';
-- Returns the app of the scope, '' for the owner's memory, and null otherwise.
CREATE FUNCTION hob.app_in_scope() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN current_setting('hob.scope', true) = 'owner' THEN ''
        WHEN starts_with(current_setting('hob.scope', true), 'app:')
            THEN substr(current_setting('hob.scope', true), 5) END;

DO $$
DECLARE
    name text;
    condition text;
BEGIN
    FOR name, condition IN
        SELECT c.relname, CASE
            WHEN c.relname IN ('audit', 'memory_events', 'app_roles') THEN '(SELECT hob.all_in_scope())'
            WHEN c.relname IN ('nodes', 'memory_state', 'memory_merge', 'memory_kinds', 'memory_imports')
                THEN '(SELECT hob.any_in_scope())'
            ELSE format('(SELECT hob.all_in_scope()) OR %I = (SELECT hob.app_in_scope())', CASE
                WHEN c.relname = 'apps' THEN 'name'
                WHEN starts_with(c.relname, 'memory_') THEN 'speaker'
                ELSE 'app' END)
            END
        FROM pg_class c
        WHERE c.relnamespace = 'hob'::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'
    LOOP
        EXECUTE format('ALTER TABLE hob.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scope ON hob.%I TO CURRENT_USER USING (%s)', name, condition);
    END LOOP;
END $$;

-- `hob.app_of_role` runs as Hob's role, and looks for the role that logged in.
CREATE POLICY own_row ON hob.app_roles FOR SELECT TO CURRENT_USER USING (role = session_user);
-- The policies of other roles are part of every query, and must not keep it from running in parallel.
ALTER FUNCTION hob.app_of_role() PARALLEL SAFE;
