//! PostgreSQL: connections, schema and values that both the ledger and the memory use.

mod connect;
pub(crate) mod connections;
mod error;
pub(crate) mod migrations;
pub(crate) mod row_scope;
pub(crate) mod seal;
pub(crate) mod text;
pub(crate) mod text_cipher;
pub(crate) mod tls;
mod url;

pub(crate) use connect::{connect, connect_failed};
pub use error::ConnectError;
pub use text_cipher::Encryption;
pub use url::{BadUrl, StoreUrl};
