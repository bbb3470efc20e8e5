//! Connecting to a database and bringing its schema up to date.

use super::connections::{Connections, Limits, Trouble};
use super::error::ConnectError;
use super::migrations::{self, MigrationError, VERSION};
use super::url::StoreUrl;

/// Connects, and brings the schema to the current version.
pub(crate) async fn connect(url: &StoreUrl, limits: Limits) -> Result<Connections, ConnectError> {
    let connections = Connections::new(url, limits)?;
    let failed = |trouble: Trouble| connect_failed(url, &trouble);
    let mut client = connections.one().await.map_err(failed)?;
    let row = client.query_one("SELECT current_setting('server_encoding')", &[]).await;
    let encoding: String = row.map_err(|error| failed(Trouble::of(&error)))?.get(0);
    if encoding != "UTF8" {
        return Err(ConnectError::Encoding { url: url.to_string(), encoding });
    }
    let text = url.to_string();
    match migrations::run(&mut client).await {
        Ok(()) => Ok(connections),
        Err(MigrationError::Newer(found)) => {
            Err(ConnectError::Newer { url: text, found, known: VERSION })
        }
        Err(MigrationError::Older(found)) => {
            Err(ConnectError::Older { url: text, found, oldest: VERSION - 1 })
        }
        Err(MigrationError::NoVector(error)) => {
            Err(ConnectError::NoVector { url: text, error: Trouble::of(&error).text().to_owned() })
        }
        Err(MigrationError::OldVector(found)) => Err(ConnectError::OldVector { url: text, found }),
        Err(MigrationError::Failed(error)) => Err(failed(Trouble::of(&error))),
    }
}

/// Makes an error of an address and a fault. The address is shown without its password.
pub(crate) fn connect_failed(url: &StoreUrl, trouble: &Trouble) -> ConnectError {
    ConnectError::Failed { url: url.to_string(), error: trouble.text().to_owned() }
}
