//! Connecting to a database and bringing its schema up to date.

use super::connections::{Connections, Limits, Trouble};
use super::error::ConnectError;
use super::migrations::{self, MigrationError, VERSION};
use super::url::StoreUrl;

/// Tells whether the policies of row-level security are for this role, or do not bind it.
const HAS_POLICIES: &str = "SELECT NOT row_security_active('hob.apps') OR EXISTS (
         SELECT 1 FROM pg_policy, unnest(polroles) role WHERE polrelid = 'hob.apps'::regclass
             AND polname = 'scope' AND pg_has_role(role, 'USAGE'))";

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
        Ok(()) => {}
        Err(MigrationError::Newer(found)) => {
            return Err(ConnectError::Newer { url: text, found, known: VERSION });
        }
        Err(MigrationError::Older(found)) => {
            return Err(ConnectError::Older { url: text, found, oldest: VERSION - 1 });
        }
        Err(MigrationError::NoVector(error)) => {
            let error = Trouble::of(&error).text().to_owned();
            return Err(ConnectError::NoVector { url: text, error });
        }
        Err(MigrationError::OldVector(found)) => {
            return Err(ConnectError::OldVector { url: text, found });
        }
        Err(MigrationError::Failed(error)) => return Err(failed(Trouble::of(&error))),
    }
    let row = client.query_one(HAS_POLICIES, &[]).await;
    let has_policies: bool = row.map_err(|error| failed(Trouble::of(&error)))?.get(0);
    if has_policies { Ok(connections) } else { Err(ConnectError::OtherRole { url: text }) }
}

/// Makes an error of an address and a fault. The address is shown without its password.
pub(crate) fn connect_failed(url: &StoreUrl, trouble: &Trouble) -> ConnectError {
    ConnectError::Failed { url: url.to_string(), error: trouble.text().to_owned() }
}
