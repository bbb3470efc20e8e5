//! `hob key rotate`: another key for both databases.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use hob_domain::DataKey;
use hob_memory::{Drain, OpeningKey, backlog};
use hob_store::Memory;
use serde_json::json;

use super::{Context, Outcome};
use crate::settings::Resolved;
use crate::{keys, memory};

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

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Outcome> {
    let Action::Rotate { json } = &args.action;
    let settings = &context.settings;
    settings.home.prepare()?;
    let _lock = match settings.home.take_lock()? {
        Ok(lock) => lock,
        Err(holder) => {
            let pid = holder.pid.map_or("unknown".to_owned(), |pid| pid.to_string());
            eprintln!("hob: stop `hob serve` first (pid {pid})");
            return Ok(Outcome::WrongState);
        }
    };
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
    Ok(Outcome::Done)
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
    // From now on hooks seal to the new key; what was sealed before is drained with the old one.
    keys::publish(home, &new)?;
    let resealed = AtomicUsize::new(0);
    change(&home.memory(), &old, &new, || {
        let store = Memory::open(&home.memory(), &old, Duration::from_secs(30))?;
        let earlier = OpeningKey::of(&old);
        let runtime = memory::runtime()?;
        runtime.block_on(async {
            let mut drain = Drain::new(memory::engine(store.clone(), &earlier), home.deferred());
            if backlog(&home.deferred()).files > 0 {
                drain.pass(Instant::now()).await;
            }
            let engine = memory::engine(store, &OpeningKey::of(&new));
            resealed.store(engine.reseal(&earlier).await?, Ordering::Relaxed);
            Ok(())
        })
    })?;
    change(&home.ledger(), &old, &new, || Ok(()))?;
    fs::rename(home.next_key(), home.key()).context("the new key cannot take its place")?;
    Ok(resealed.into_inner())
}

/// Brings one database to the new key, unless it is there already.
fn change(
    path: &std::path::Path,
    old: &DataKey,
    new: &DataKey,
    before: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !path.exists() || hob_store::opens_with(path, new) {
        return Ok(());
    }
    before()?;
    Ok(hob_store::rekey(path, old, new)?)
}
