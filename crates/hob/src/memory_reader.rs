//! Opens the memory for commands that only read it.

use std::time::Duration;

use hob_mcp::Tools;
use hob_store::OpenError;

use crate::memory::{open, open_read_only};
use crate::settings::Resolved;

/// Opens the memory like [`open`]. On a full disk SQLite cannot make the index of its log, and the memory is then read as on
/// a disk that cannot be written.
pub async fn open_to_read(settings: &Resolved, busy: Duration) -> anyhow::Result<Tools> {
    let error = match open(settings, busy).await {
        Ok(tools) => return Ok(tools),
        Err(error) => error,
    };
    let is_of_the_disk = error.downcast_ref().is_some_and(OpenError::is_of_the_disk);
    match settings.values.store_url.is_none() && is_of_the_disk {
        true => open_read_only(settings, busy).map_err(|_| error),
        false => Err(error),
    }
}
