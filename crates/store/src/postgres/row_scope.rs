//! The scope of a transaction: the rows that the policies of row-level security let it see and change.

use tokio_postgres::{Client, Error};

/// The rows that a transaction may see and change. Without a scope it sees none, and every insert is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowScope<'a> {
    /// The rows of one app, in the ledger and in the memory.
    App(&'a str),
    /// The owner's memory.
    Owner,
    /// Only rows that belong to no app and that every scope has: nodes, and the state of the memory.
    Shared,
    /// All rows. The tidy test knows every function that uses it.
    All,
}

impl<'a> RowScope<'a> {
    /// Returns the scope of a principal of the memory, by the name that the store uses.
    pub(crate) fn of_principal(speaker: &'a str) -> RowScope<'a> {
        if speaker.is_empty() { RowScope::Owner } else { RowScope::App(speaker) }
    }

    /// Returns the statement that sets the scope for the rest of the transaction.
    pub(crate) fn for_transaction(self) -> String {
        format!("SET LOCAL hob.scope = {}", self.literal())
    }

    /// Returns the statement that sets the scope of a connection that is not in a pool.
    pub(crate) fn for_connection(self) -> String {
        format!("SET hob.scope = {}", self.literal())
    }

    /// Changes the scope for the rest of a transaction. To save a round trip, join it with the next statement, in this
    /// order (`biased`).
    pub(crate) async fn enter(self, client: &Client) -> Result<(), Error> {
        client.batch_execute(&self.for_transaction()).await
    }

    /// Returns the value of the setting, quoted so that it is one text under all settings of the server.
    fn literal(self) -> String {
        match self {
            RowScope::App(name) => {
                format!("E'app:{}'", name.replace('\\', "\\\\").replace('\'', "''"))
            }
            RowScope::Owner => "'owner'".to_owned(),
            RowScope::Shared => "'shared'".to_owned(),
            RowScope::All => "'all'".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hob_testkit::Postgres;

    use super::*;
    use crate::postgres::connections::{Again, Limits};
    use crate::postgres::{StoreUrl, connect};

    #[test]
    fn scope_is_one_quoted_text() {
        let check = |scope: RowScope<'_>, expect: &str| {
            assert_eq!(scope.for_transaction(), format!("SET LOCAL hob.scope = {expect}"));
        };
        check(RowScope::of_principal("crm"), "E'app:crm'");
        check(RowScope::of_principal(""), "'owner'");
        check(RowScope::App("all"), "E'app:all'");
        check(RowScope::App("a'; SET hob.scope = 'all"), "E'app:a''; SET hob.scope = ''all'");
        check(RowScope::App("a\\'b"), "E'app:a\\\\''b'");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connection_keeps_no_scope_for_the_next_transaction() {
        let server = Postgres::start_shared();
        let url: StoreUrl = server.database().parse().unwrap();
        let limits = Limits { max_connections: 1, ..Limits::default() };
        let connections = connect(&url, limits).await.unwrap();
        for name in ["a", "b"] {
            let sql = "INSERT INTO hob.apps VALUES ($1, $1, '')";
            let scoped = connections.within(RowScope::App(name));
            scoped.query(Again::Never, sql, &[&name]).await.unwrap();
        }
        let sql = "SELECT name FROM hob.apps ORDER BY name";
        let names = async |scope: RowScope<'static>| {
            let rows = connections.within(scope).query(Again::Harmless, sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
        };
        assert_eq!(names(RowScope::All).await, ["a", "b"]);
        assert_eq!(names(RowScope::App("a")).await, ["a"]);
        assert_eq!(names(RowScope::Shared).await, [""; 0]);
        // A statement that fails ends its transaction, too.
        let failed = connections.within(RowScope::All).query(Again::Never, "SELECT 1 / 0", &[]);
        assert!(failed.await.is_err());
        let client = connections.one().await.ok().expect("a connection");
        assert_eq!(client.query(sql, &[]).await.unwrap().len(), 0);
    }
}
