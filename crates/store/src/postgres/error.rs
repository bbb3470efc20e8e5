//! Errors of connecting to PostgreSQL.

/// Why a database can't be used. None of it holds a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{url} cannot be used: {error}")]
    Failed { url: String, error: String },
    #[error("{url} was written by a newer hob (schema {found}, this one knows {known})")]
    Newer { url: String, found: usize, known: usize },
    #[error("{url} holds its texts in {encoding}; it must be made with ENCODING 'UTF8'")]
    Encoding { url: String, encoding: String },
    #[error(
        "{url} has no pgvector, by which the memory finds what is near: install it on the server (version 0.8 or \
         later), and have a superuser run CREATE EXTENSION vector in this database ({error})"
    )]
    NoVector { url: String, error: String },
    #[error("{url} has pgvector {found}; 0.8 or later is needed: ALTER EXTENSION vector UPDATE")]
    OldVector { url: String, found: String },
    #[error(
        "the memory in {url} was made with another key: copy the file `key` of the home of the Hob that made it into \
         this home"
    )]
    OtherKey { url: String },
    #[error(
        "the memory in {url} was made with store.encrypt = {encrypted}, which stands for as long as it exists: set \
         the same here"
    )]
    OtherEncryption { url: String, encrypted: bool },
    #[error(
        "a move into the memory in {url} has begun and not ended: run `hob store migrate --from sqlite --to postgres` again"
    )]
    HalfMoved { url: String },
    #[error("`hob store migrate` is moving what is in {url}")]
    BeingMoved { url: String },
    #[error("the certificates of the database cannot be used: {error}")]
    Certificates { error: String },
}
