//! `hob key rotate`: encrypts both databases with a new key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, Subcommand};
use hob_domain::DataKey;
use hob_files::owned;
use hob_memory::{Drain, OpeningKey, OpeningKeys, backlog};
use hob_store::Memory;
use serde_json::json;

use super::confirm::OwnersAct;
use super::{Context, Exit, audit};
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;
use crate::{keys, memory};

/// The maximum lifetime of a hook, with a margin.
const HOOK_LIFETIME: Duration = Duration::from_millis(2200);
/// How long to wait for another process that uses the store.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Manage the key that encrypts the databases
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Subcommand)]
enum KeyAction {
    /// Create a new key and re-encrypt the databases with it; run `hob stop` first
    Rotate {
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
        /// Print {"rotated":true,"resealed":…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let KeyAction::Rotate { yes, json } = &args.action;
    let settings = &context.settings;
    let act = OwnersAct {
        command: "hob key rotate",
        question: "Encrypt everything with a new key?",
        yes: *yes,
    };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    if let Some(url) = &settings.values.store_url {
        errln!(
            "hob: cannot rotate the key of {url}, because all nodes share that key. Instead, move the data to SQLite with \
             `hob store migrate`, run `hob key rotate`, and move the data into an empty database with `hob store migrate`."
        );
        return Ok(Exit::WrongState);
    }
    settings.home.prepare()?;
    let Some(lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    finish_rotation(settings)?;
    keys::next_key(&settings.home, settings.passphrase.as_deref())?;
    let resealed = finish_rotation(settings)?;
    drop(lock);
    audit::record(settings, "key_rotate", "");
    if *json {
        printer::out_json(&json!({"rotated": true, "resealed": resealed}));
    } else {
        outln!("encrypted everything with a new key, including the secrets of {resealed} turns");
    }
    Ok(Exit::Done)
}

/// Finishes a rotation that has begun, if any. After an interruption it can be called again. The
/// caller must hold the serve lock. Returns the number of turns whose secrets were sealed to the
/// new key.
pub fn finish_rotation(settings: &Resolved) -> anyhow::Result<usize> {
    let home = &settings.home;
    if !home.next_key().exists() {
        return Ok(0);
    }
    let passphrase = settings.passphrase.as_deref();
    let old = keys::data_key(home, passphrase)?;
    let new = keys::next_key(home, passphrase)?;
    // Hooks seal to the new key from now on. The pause outlasts those that began with the old one.
    keys::publish(home, &new)?;
    std::thread::sleep(HOOK_LIFETIME);
    let keys = || OpeningKeys::from(OpeningKey::of(&new)).and(OpeningKey::of(&old));
    let mut resealed = 0;
    if home.memory().exists() || backlog(&home.deferred()).files > 0 {
        let moved = home.memory().exists() && hob_store::opens_with(&home.memory(), &new);
        let store_key = if moved { &new } else { &old };
        let store = Memory::open(&home.memory(), store_key, Duration::from_secs(30))?;
        memory::runtime()?.block_on(async {
            let engine = memory::engine(settings, Arc::new(store), keys());
            Drain::new(engine.clone(), home.deferred()).drain_once().await;
            resealed = engine.reseal(&OpeningKey::of(&old)).await?;
            anyhow::Ok(())
        })?;
        rekey_database(&home.memory(), &old, &new)?;
    }
    rekey_database(&home.ledger(), &old, &new)?;
    owned::rename(home.next_key(), home.key()).map_err(|error| {
        anyhow::anyhow!(
            "cannot finish the key rotation: cannot rename key.next to key ({error}); do not delete either file; \
             run `hob key rotate` again"
        )
    })?;
    Ok(resealed)
}

/// Encrypts one database with the new key, unless it already is. Waits for other processes that
/// still use it.
fn rekey_database(path: &std::path::Path, old: &DataKey, new: &DataKey) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        if !path.exists() || hob_store::opens_with(path, new) {
            return Ok(());
        }
        match hob_store::rekey(path, old, new) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_temporary() && started.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
