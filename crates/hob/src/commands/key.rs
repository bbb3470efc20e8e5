//! `hob key rotate`: another key for both databases.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use hob_domain::DataKey;
use hob_memory::{Drain, OpeningKey, OpeningKeys, backlog};
use hob_store::Memory;
use serde_json::json;

use super::{Context, Exit};
use crate::settings::Resolved;
use crate::{keys, memory};

/// Longer than any hook lives.
const HOOK_LIFE: Duration = Duration::from_millis(2200);
/// How long others may keep the store busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The key that everything is encrypted with
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a new key and encrypt everything with it; hob must not be running
    Rotate {
        /// Print {"rotated":true,"resealed":…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let Action::Rotate { json } = &args.action;
    let settings = &context.settings;
    if let Some(url) = &settings.store {
        eprintln!(
            "hob: the memory in {url} is encrypted with this key, which all nodes share; it can't be changed there. Move back with \
             `hob store migrate`, change it here, and move into an empty database"
        );
        return Ok(Exit::WrongState);
    }
    settings.home.prepare()?;
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    settle(settings)?;
    keys::next_key(&settings.home, settings.passphrase.as_deref())?;
    let resealed = settle(settings)?;
    if *json {
        println!("{}", json!({"rotated": true, "resealed": resealed}));
    } else {
        println!(
            "everything is encrypted with a new key; {resealed} sealed turns were sealed again"
        );
    }
    Ok(Exit::Done)
}

/// Finishes the change to the next key, where there is one. Broken off at any point it can be called
/// again; the serve lock must be held. Returns how many turns were sealed anew.
pub fn settle(settings: &Resolved) -> anyhow::Result<usize> {
    let home = &settings.home;
    if !home.next_key().exists() {
        return Ok(0);
    }
    let passphrase = settings.passphrase.as_deref();
    let old = keys::data_key(home, passphrase)?;
    let new = keys::next_key(home, passphrase)?;
    // From now on hooks seal to the new key, but for those that have begun before; none of them lives
    // longer than this.
    keys::publish(home, &new)?;
    std::thread::sleep(HOOK_LIFE);
    let keys = || OpeningKeys::from(OpeningKey::of(&new)).and(OpeningKey::of(&old));
    let mut resealed = 0;
    if home.memory().exists() || backlog(&home.deferred()).files > 0 {
        let moved = home.memory().exists() && hob_store::opens_with(&home.memory(), &new);
        let store_key = if moved { &new } else { &old };
        let store = Memory::open(&home.memory(), store_key, Duration::from_secs(30))?;
        memory::runtime()?.block_on(async {
            let engine = memory::engine(Arc::new(store), keys());
            Drain::new(engine.clone(), home.deferred()).pass(Instant::now()).await;
            resealed = engine.reseal(&OpeningKey::of(&old)).await?;
            anyhow::Ok(())
        })?;
        change(&home.memory(), &old, &new)?;
    }
    change(&home.ledger(), &old, &new)?;
    fs::rename(home.next_key(), home.key()).context("the new key cannot take its place")?;
    Ok(resealed)
}

/// Brings one database to the new key, unless it is there already. Others may still be at it for a
/// moment.
fn change(path: &std::path::Path, old: &DataKey, new: &DataKey) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        if !path.exists() || hob_store::opens_with(path, new) {
            return Ok(());
        }
        match hob_store::rekey(path, old, new) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_temporary() && started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
