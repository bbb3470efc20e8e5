//! Errors of connecting to PostgreSQL.

/// The reason why a database cannot be used. No message contains a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot open the database {url}: {error}")]
    Failed { url: String, error: String },
    #[error(
        "{url} was written by a newer hob (schema {found}; this one supports up to {known}): update this hob"
    )]
    Newer { url: String, found: u32, known: u32 },
    #[error(
        "{url} was written by an earlier hob (schema {found}), which this version cannot upgrade: first open it with a \
         hob version that uses schema {oldest}, then with this one"
    )]
    Older { url: String, found: u32, oldest: u32 },
    #[error(
        "the database {url} uses the encoding {encoding}, but Hob needs UTF8: create it again with ENCODING 'UTF8'"
    )]
    Encoding { url: String, encoding: String },
    #[error(
        "{url} has no pgvector, which the memory needs for vector search: install version 0.8 or later on the database server, and \
         have a superuser run CREATE EXTENSION vector in this database ({error})"
    )]
    NoVector { url: String, error: String },
    #[error(
        "{url} has pgvector {found}, but 0.8 or later is required: run ALTER EXTENSION vector UPDATE"
    )]
    OldVector { url: String, found: String },
    #[error(
        "the role of {url} sees no rows, because the policies of the tables are for another role: connect as the role that \
         created the tables, or change the policies (docs/postgresql.md, \"Another role for Hob\")"
    )]
    OtherRole { url: String },
    #[error(
        "the memory in {url} is encrypted with a different key: copy the file `key` from the home folder of the server \
         that created the memory into the home folder of this server"
    )]
    OtherKey { url: String },
    #[error(
        "the memory in {url} was created with store.encrypt = {encrypted}, which cannot be changed afterwards: set the \
         same value here"
    )]
    OtherEncryption { url: String, encrypted: bool },
    #[error(
        "the migration to {url} is incomplete; to finish it, run `hob store migrate --from sqlite --to postgres` again"
    )]
    HalfMoved { url: String },
    #[error("`hob store migrate` is running on {url}; try again when it is done")]
    BeingMoved { url: String },
    #[error("cannot load the certificates for the database: {error}")]
    Certificates { error: String },
}
