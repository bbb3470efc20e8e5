//! The memory as short-lived commands reach it: through the server where one answers, else by
//! themselves under the store's lock, else by a file that the server drains.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_domain::memory::{MemoryStore, Principal, Stored};
use hob_domain::{DataKey, Timestamp};
use hob_mcp::{Here, Tools};
use hob_memory::{
    CaptureBatch, Engine, OpeningKey, OpeningKeys, RawTurn, SealingKey, TableEmbedder, deferral,
    locate_project,
};
use hob_store::{ConnectError, Memory, PostgresMemory};
use serde_json::Value;

use crate::keys;
use crate::settings::Resolved;
use crate::socket::client::{Connection, DEADLINE, PROBE};
use crate::socket::{Answer, Call};

/// The most turns, and about the most bytes of text, that go in one call or one transaction.
const CHUNK_TURNS: usize = 200;
const CHUNK_BYTES: usize = 1 << 20;
/// The same for a command that works on the store itself and must be able to stop.
const IN_PROCESS: usize = 50;
/// What must be left of the time to begin another step.
const RESERVE: Duration = Duration::from_millis(150);

/// About how much of a transcript a hook reads at a time.
pub const PART: usize = 8 << 20;

/// Whether a hook has the time for another part of a transcript.
pub fn is_time_for_more(deadline: Instant) -> bool {
    remaining(deadline) > Duration::from_millis(600)
}

/// Whether there may be a memory already.
pub fn exists(settings: &Resolved) -> bool {
    settings.store.is_some() || settings.home.memory().exists()
}

/// Opens the memory in this process, in the home or in the database. A write waits at most `busy` for others. Inside
/// an agent it is refused: there only the server knows who is asking. What is opened belongs to the runtime that
/// this runs on. Nobody moves the memory until this process ends; while somebody does it is refused.
pub async fn open(settings: &Resolved, busy: Duration) -> anyhow::Result<Tools> {
    if settings.home.is_inside_agent() {
        anyhow::bail!("inside an agent the memory is reached through `hob serve` alone");
    }
    std::mem::forget(settings.home.share_store()?);
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    open_with(settings, &key, busy).await
}

/// The same for a caller that has the home's key already.
pub async fn open_with(
    settings: &Resolved,
    key: &DataKey,
    busy: Duration,
) -> anyhow::Result<Tools> {
    let home = &settings.home;
    if let Some(store) = in_database(settings, key, busy).await? {
        keys::publish_first(home, key)?;
        let engine = engine(Arc::new(store), OpeningKeys::from(OpeningKey::of(key)));
        return Ok(Tools { engine, deferred: home.deferred() });
    }
    let (store, opening) = if home.next_key().exists() {
        // A change of the key was broken off: the store may have either, and seals are to both.
        let next = keys::next_key(home, settings.passphrase.as_deref())?;
        let store = Memory::open(&home.memory(), key, busy)
            .or_else(|_| Memory::open(&home.memory(), &next, busy))?;
        (store, OpeningKeys::from(OpeningKey::of(&next)).and(OpeningKey::of(key)))
    } else {
        // A new memory is made only with the key that the rest of the home has.
        let (new, ledger) = (!home.memory().exists(), home.ledger());
        if new && ledger.exists() && !hob_store::opens_with(&ledger, key) {
            anyhow::bail!(
                "{} was made with another key than {}",
                ledger.display(),
                home.key().display()
            );
        }
        let store = Memory::open(&home.memory(), key, busy)?;
        keys::publish_first(home, key)?;
        (store, OpeningKeys::from(OpeningKey::of(key)))
    };
    Ok(Tools { engine: engine(Arc::new(store), opening), deferred: home.deferred() })
}

/// The memory in the database, where the settings say so.
async fn in_database(
    settings: &Resolved,
    key: &DataKey,
    patience: Duration,
) -> Result<Option<PostgresMemory>, ConnectError> {
    let Some(url) = &settings.store else { return Ok(None) };
    PostgresMemory::connect(url, key, settings.store_encrypt.into(), patience).await.map(Some)
}

/// The memory on a store, with the built-in embedder.
pub fn engine(store: Arc<dyn MemoryStore>, opening: OpeningKeys) -> Engine {
    Engine::new(store, Box::new(TableEmbedder::new()), opening)
}

/// A runtime for one command.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Calls one of the tools, through the server or in this process.
pub fn call_tool(
    settings: &Resolved,
    name: &str,
    arguments: Value,
) -> anyhow::Result<Result<Value, String>> {
    let cwd = std::env::current_dir().ok();
    if let Ok(mut connection) = Connection::open(&settings.socket, DEADLINE) {
        let cwd = cwd.map(|cwd| cwd.display().to_string());
        let call = Call::Tool { name: name.to_owned(), arguments, cwd };
        return match connection.call(&call, Duration::from_secs(30))? {
            Answer::Result(value) => Ok(Ok(value)),
            Answer::Refused(why) => Ok(Err(why)),
            other => anyhow::bail!("the server answered something else: {other:?}"),
        };
    }
    settings.home.prepare()?;
    runtime()?.block_on(async {
        let tools = open(settings, Duration::from_secs(5)).await?;
        let here = Here { principal: Principal::Owner, place: cwd.map(|cwd| locate_project(&cwd)) };
        Ok(tools.call(&here, name, arguments).await.map_err(|error| error.to_string()))
    })
}

/// How far the chosen model is, in words, where one was chosen and a server answers.
pub fn model_progress(settings: &Resolved) -> Option<String> {
    settings.memory_model.as_ref()?;
    let mut connection = Connection::open(&settings.socket, DEADLINE).ok()?;
    let name = "memory_stats".to_owned();
    let call = Call::Tool { name, arguments: Value::Object(Default::default()), cwd: None };
    let Answer::Result(stats) = connection.call(&call, DEADLINE).ok()? else { return None };
    let model = stats.get("model")?;
    let folder = model["folder"].as_str()?;
    Some(match model["state"].as_str()? {
        "loading" => format!("{folder} is being read"),
        "failed" => stats["health"].as_str()?.to_owned(),
        _ => format!("{folder} has embedded {} of {} turns", model["embedded"], model["of"]),
    })
}

/// What to do with turns when no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Write a file and leave.
    Defer,
    /// Write into the store; a file only where it can't be had.
    Store,
}

/// What became of the turns.
#[derive(Debug, Default)]
pub struct Delivered {
    pub stored: Stored,
    /// The file that holds the rest, and how many turns that are.
    pub deferred: Option<(PathBuf, usize)>,
}

/// Brings turns to where they are durable, before `deadline`. `cwd` is what a deferral file says.
pub fn deliver(
    settings: &Resolved,
    batch: &CaptureBatch,
    cwd: &str,
    fallback: Fallback,
    deadline: Instant,
) -> anyhow::Result<Delivered> {
    let mut delivered = Delivered::default();
    let mut left: &[RawTurn] = &batch.turns;
    if let Ok(mut connection) = Connection::open(&settings.socket, PROBE) {
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(chunk(left));
            let time = DEADLINE.min(remaining(deadline).saturating_sub(RESERVE));
            match connection.call(&Call::Capture { batch: batch.with_turns(chunk) }, time) {
                Ok(Answer::Captured(stored)) => delivered.stored += stored,
                _ => break,
            }
            left = rest;
        }
        if left.is_empty() {
            return Ok(delivered);
        }
    }
    if settings.home.is_inside_agent() {
        anyhow::bail!("inside an agent turns are captured through `hob serve` alone");
    }
    settings.home.prepare_for_capture()?;
    if fallback == Fallback::Store {
        // A store that can't be had is no reason to lose anything.
        let _ = store(settings, batch, &mut left, &mut delivered, deadline);
        if left.is_empty() {
            return Ok(delivered);
        }
    }
    let key = sealing_key(settings)?;
    let rest = batch.with_turns(left);
    let path = deferral::write(&settings.home.deferred(), &rest, cwd, &key, Timestamp::now())?;
    delivered.deferred = Some((path, rest.turns.len()));
    Ok(delivered)
}

fn store(
    settings: &Resolved,
    batch: &CaptureBatch,
    left: &mut &[RawTurn],
    delivered: &mut Delivered,
    deadline: Instant,
) -> anyhow::Result<()> {
    // While the key is being changed the store is not for others.
    if settings.home.next_key().exists() {
        return Ok(());
    }
    let busy = DEADLINE.min(remaining(deadline).saturating_sub(to_defer(left)));
    let runtime = runtime()?;
    // A database that takes its time is left to the server as well: what it may have stored all the same is known when
    // it comes again.
    let tools = runtime.block_on(async { within(busy, open(settings, busy)).await })??;
    while !left.is_empty() && remaining(deadline) > to_defer(left) {
        let (chunk, rest) = left.split_at(chunk(left).min(IN_PROCESS));
        // What would take long is left to the server, which has the time.
        if chunk.iter().map(|turn| turn.text.len()).sum::<usize>() > CHUNK_BYTES {
            break;
        }
        let stored = tools.engine.capture(&Principal::Owner, batch.with_turns(chunk), Vec::new());
        let time = remaining(deadline).saturating_sub(to_defer(left));
        delivered.stored += runtime.block_on(async { within(time, stored).await })??;
        *left = rest;
    }
    Ok(())
}

/// What something comes to, if it comes in time.
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(time, work).await.map_err(|_| anyhow::anyhow!("it took too long"))
}

/// What must be left of the time so that these can still go into a file.
fn to_defer(turns: &[RawTurn]) -> Duration {
    RESERVE + Duration::from_micros(150) * turns.len() as u32
}

/// What deferral files are sealed to. Where the home's key can't be had the secrets are masked all
/// the same, and their originals are lost: better than leaked.
fn sealing_key(settings: &Resolved) -> anyhow::Result<SealingKey> {
    keys::sealing_key(&settings.home, settings.passphrase.as_deref())
        .or_else(|_| Ok(OpeningKey::of(&keys::new_data_key()?).sealing_key()))
}

/// How many of these turns go together.
pub fn chunk(turns: &[RawTurn]) -> usize {
    let mut bytes = 0;
    let fits = turns.iter().take(CHUNK_TURNS).take_while(|turn| {
        bytes += turn.text.len();
        bytes <= CHUNK_BYTES
    });
    fits.count().clamp(1, turns.len().max(1))
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
