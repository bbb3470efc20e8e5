//! The PostgreSQL databases in which this home has had apps and sessions. One of them that holds nothing any more, because
//! somebody has emptied it or created it again, is an error instead of an empty start.

use std::collections::BTreeSet;
use std::io;

use anyhow::Context as _;
use hob_files::owned;
use hob_store::{PostgresLedger, StoreUrl};

use crate::home::Home;

/// Fails if a database held something and is empty now. Notes a database that holds something.
pub async fn check(home: &Home, url: &StoreUrl, ledger: &PostgresLedger) -> anyhow::Result<()> {
    let holds_anything = ledger.holds_anything().await?;
    // The address has no password.
    let (home, address) = (home.clone(), url.to_string());
    tokio::task::spawn_blocking(move || match holds_anything {
        true => note(&home, address),
        false => refuse_known(&home, &address),
    })
    .await?
}

fn refuse_known(home: &Home, address: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        !read(home)?.contains(address),
        "the database {address} is empty, but it held this home's apps and sessions. Restore its backup, check `store.url`, \
         or start over with `hob store accept-loss`"
    );
    Ok(())
}

fn note(home: &Home, address: String) -> anyhow::Result<()> {
    let mut known = read(home)?;
    // A disk that is full or read-only must not keep anyone from reading.
    if known.insert(address)
        && let Err(error) = write(home, &known)
    {
        tracing::warn!(%error, "cannot note that the database is in use");
    }
    Ok(())
}

/// Forgets what the databases held: the owner goes on without it.
pub fn forget(home: &Home) -> anyhow::Result<()> {
    let path = home.known_databases();
    match owned::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn read(home: &Home) -> anyhow::Result<BTreeSet<String>> {
    let path = home.known_databases();
    match owned::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} is damaged: it says which databases have held something. Check that the database is whole, and then \
                 remove the file with `hob store accept-loss`",
                path.display()
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write(home: &Home, known: &BTreeSet<String>) -> anyhow::Result<()> {
    hob_files::write_over(&home.known_databases(), &serde_json::to_vec(known)?, 0o600)?;
    Ok(())
}
