//! How short-lived commands reach the memory: through the server if one answers, else in this
//! process under the store's lock, else by a deferral file that the server stores later.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hob_domain::memory::{MemoryStore, Principal, Stored, TurnSource};
use hob_domain::{DataKey, Timestamp};
use hob_files::owned;
use hob_mcp::{CallerContext, Tools};
use hob_memory::{
    CaptureBatch, Engine, ForgetRequests, OpeningKey, OpeningKeys, RawTurn, SealingKey, deferral,
    locate_project,
};
use hob_store::{ConnectError, Memory, PostgresMemory};
use serde_json::Value;

use crate::home::Home;
use crate::inventory::Inventory;
use crate::keys;
use crate::migration_guard::{Opener, open_memory, open_memory_with_either};
use crate::settings::Resolved;
use crate::socket::client::{CALL_TIMEOUT, Connection, PROBE_TIMEOUT};
use crate::socket::{Answer, Call};

/// The maximum number of turns in one call or one transaction.
const MAX_CHUNK_TURNS: usize = 200;
/// The maximum size of the texts in one call or one transaction, except for a single turn.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// The maximum number of turns in one transaction of a hook, which must be able to stop in time.
const MAX_HOOK_TRANSACTION_TURNS: usize = 50;
/// The longest turn that a hook stores itself, in bytes.
const MAX_HOOK_TURN_BYTES: usize = 3 << 20;
/// The time that a hook reserves for writing a deferral file and waiting for the disk.
const DEFERRAL_RESERVE: Duration = Duration::from_millis(300);
/// The time that writing one mebibyte of text into a deferral file may take. Masking it is not part of that.
const DEFERRAL_TIME_PER_MEBIBYTE: Duration = Duration::from_millis(25);
/// A batch with more text is large: masking it takes long, so that is done while the server or the store takes the turns.
const MAX_SMALL_BATCH_BYTES: usize = 256 << 10;
/// A batch with more turns is large, too.
const MAX_SMALL_BATCH_TURNS: usize = 500;
/// How long the server or the store may take for a large batch before its deferral file is encoded in advance.
const ENCODING_DELAY: Duration = Duration::from_millis(150);
/// With less time left, a hook does not wait for the disk at all: a process cannot end during such a wait.
const MIN_SYNC_TIME: Duration = Duration::from_millis(50);
/// The time that a hook must have left to read another part of a transcript.
const MIN_TIME_PER_PART: Duration = Duration::from_millis(600);
/// How long a command waits for another process that writes into the store.
pub const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a command waits for the answer of a tool.
const TOOL_TIMEOUT: Duration = Duration::from_secs(30);

/// About how many bytes of a transcript a hook reads at a time.
pub const TRANSCRIPT_PART_BYTES: usize = 8 << 20;

/// Returns whether a hook has time for another part of a transcript, after one that took this long.
pub fn has_time_for_more(deadline: Instant, took: Duration) -> bool {
    remaining(deadline) > MIN_TIME_PER_PART.max(took * 3 / 2)
}

/// Returns whether the memory may exist already. A database is not asked.
pub fn exists(settings: &Resolved) -> bool {
    settings.values.store_url.is_some() || settings.home.memory().exists()
}

/// Opens the memory in this process, in the home or in the database. A write waits up to `busy` for
/// other processes. Fails inside an agent, where only the server knows which app is asking, and
/// during a migration. No migration can start until this process ends. The result belongs to the
/// current async runtime.
pub async fn open(settings: &Resolved, busy: Duration) -> anyhow::Result<Tools> {
    if settings.home.is_inside_agent() {
        anyhow::bail!(
            "no server answers, and an agent cannot use the memory without one; start `hob serve` outside the agent"
        );
    }
    if settings.values.store_url.is_none() && settings.home.is_read_only() {
        return open_read_only(settings, busy);
    }
    std::mem::forget(settings.home.share_store()?);
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    open_with(settings, &key, busy, Opener::Command).await
}

/// Opens the memory like [`open`], for a caller that has the home's key and a lock.
pub async fn open_with(
    settings: &Resolved,
    key: &DataKey,
    busy: Duration,
    opener: Opener,
) -> anyhow::Result<Tools> {
    let home = &settings.home;
    if let Some(store) = connect_postgres(settings, key, busy).await? {
        keys::publish_first(home, key)?;
        let engine = engine(settings, Arc::new(store), OpeningKeys::from(OpeningKey::of(key)));
        return Ok(tools(home, engine));
    }
    let (store, opening) = if home.next_key().exists() {
        // A key rotation was interrupted: either key may open the store, and secrets are sealed to
        // both.
        let next = keys::next_key(home, settings.passphrase.as_deref())?;
        let store = open_memory_with_either(home, [key, &next], busy, opener)?;
        (store, OpeningKeys::from(OpeningKey::of(&next)).and(OpeningKey::of(key)))
    } else {
        // A new memory must have the same key as the ledger.
        let (new, ledger) = (!home.memory().exists(), home.ledger());
        if new && ledger.exists() && !hob_store::opens_with(&ledger, key) {
            anyhow::bail!(
                "{} was created with a different key from the one in {}; restore the key it was created with",
                ledger.display(),
                home.key().display()
            );
        }
        let inventory = Inventory::new(home);
        let turns = inventory.check_memory(key)?;
        let store = open_memory(home, key, busy, opener)?;
        // A full disk must not keep anyone from reading. A later start notes it.
        if let Err(error) = inventory.note_memory(key, turns) {
            tracing::warn!(%error, "cannot note how much the memory holds");
        }
        keys::publish_first(home, key)?;
        (store, OpeningKeys::from(OpeningKey::of(key)))
    };
    Ok(tools(home, engine(settings, Arc::new(store), opening)))
}

/// Opens the memory of a home that cannot be written. Every call that writes fails.
pub fn open_read_only(settings: &Resolved, busy: Duration) -> anyhow::Result<Tools> {
    let home = &settings.home;
    let path = home.memory();
    if !path.exists() {
        anyhow::bail!(
            "cannot create {}: {} cannot be written",
            path.display(),
            home.root().display()
        );
    }
    let mut key = keys::data_key(home, settings.passphrase.as_deref())?;
    let mut opening = OpeningKeys::from(OpeningKey::of(&key));
    if home.next_key().exists() {
        let next = keys::next_key(home, settings.passphrase.as_deref())?;
        opening = OpeningKeys::from(OpeningKey::of(&next)).and(OpeningKey::of(&key));
        if Memory::open_read_only(&path, &key, busy).is_err() {
            key = next;
        }
    }
    Inventory::new(home).check_memory(&key)?;
    let store = Memory::open_read_only(&path, &key, busy)?;
    Ok(tools(home, engine(settings, Arc::new(store), opening)))
}

fn tools(home: &Home, engine: Engine) -> Tools {
    let forget_requests = ForgetRequests::new(home.forget_requests());
    Tools { engine, deferred: home.deferred(), forget_requests }
}

/// Opens the memory in PostgreSQL, if `store.url` is set.
async fn connect_postgres(
    settings: &Resolved,
    key: &DataKey,
    busy: Duration,
) -> Result<Option<PostgresMemory>, ConnectError> {
    let Some(url) = &settings.values.store_url else { return Ok(None) };
    PostgresMemory::connect(url, key, settings.values.store_encrypt.into(), busy).await.map(Some)
}

/// Returns the memory engine on a store, with the built-in embedding table.
pub fn engine(settings: &Resolved, store: Arc<dyn MemoryStore>, opening: OpeningKeys) -> Engine {
    Engine::new(store, opening, settings.values.memory_undo)
}

/// Returns an async runtime for one command.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Calls the server, if one answers. The inner error is the reason for which it refused.
pub fn call_server(
    settings: &Resolved,
    call: &Call,
) -> anyhow::Result<Option<Result<Value, String>>> {
    let Ok(mut connection) = Connection::open_home(&settings.socket, &settings.home, CALL_TIMEOUT)
    else {
        return Ok(None);
    };
    match connection.call(call, TOOL_TIMEOUT)? {
        Answer::Result(value) => Ok(Some(Ok(value))),
        Answer::Refused(reason) => Ok(Some(Err(reason))),
        other => anyhow::bail!("unexpected response from the server: {other:?}"),
    }
}

/// Calls one of the memory's tools on the memory of an app, which only the server knows.
pub fn call_tool_of_app(
    settings: &Resolved,
    app: &str,
    name: &str,
    arguments: Value,
) -> anyhow::Result<Result<Value, String>> {
    let (name, app) = (name.to_owned(), Some(app.to_owned()));
    let answer = call_server(settings, &Call::Tool { name, arguments, cwd: None, app })?;
    answer.ok_or_else(|| anyhow::anyhow!("--app needs a running server; start it with `hob serve`"))
}

/// Calls one of the memory's tools, through the server or in this process.
pub fn call_tool(
    settings: &Resolved,
    name: &str,
    arguments: Value,
) -> anyhow::Result<Result<Value, String>> {
    let cwd = std::env::current_dir().ok();
    let call = Call::Tool {
        name: name.to_owned(),
        arguments: arguments.clone(),
        cwd: cwd.as_ref().map(|cwd| cwd.display().to_string()),
        app: None,
    };
    if let Some(answer) = call_server(settings, &call)? {
        return Ok(answer);
    }
    if !settings.home.is_read_only() {
        settings.home.prepare()?;
    }
    runtime()?.block_on(async {
        let tools = open(settings, STORE_BUSY_TIMEOUT).await?;
        let location = cwd.map(|cwd| locate_project(&cwd));
        let (principal, note_source) = (Principal::Owner, TurnSource::Owner);
        let caller = CallerContext { principal, location, note_source };
        Ok(tools.call(&caller, name, arguments).await.map_err(|error| error.to_string()))
    })
}

/// Returns the progress of the sentence model in words, if one is set and a server answers.
pub fn model_progress(settings: &Resolved) -> Option<String> {
    settings.values.memory_model.as_ref()?;
    let mut connection =
        Connection::open_home(&settings.socket, &settings.home, CALL_TIMEOUT).ok()?;
    let name = "memory_stats".to_owned();
    let arguments = Value::Object(Default::default());
    let call = Call::Tool { name, arguments, cwd: None, app: None };
    let Answer::Result(stats) = connection.call(&call, CALL_TIMEOUT).ok()? else { return None };
    let model = stats.get("model")?;
    let folder = model["folder"].as_str()?;
    Some(match model["state"].as_str()? {
        "loading" => format!("loading {folder}"),
        "failed" => stats["health"].as_str()?.to_owned(),
        _ => format!(
            "the model in {folder} has embedded {} of {} turns",
            model["embedded"], model["of"]
        ),
    })
}

/// What to do with turns if no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Write a deferral file.
    Defer,
    /// Write into the store, or into a deferral file if the store is not available in time.
    Store,
}

/// Where the turns of a delivery went.
#[derive(Debug, Default)]
pub struct Delivered {
    pub stored: Stored,
    /// The deferral file, and the number of turns in it.
    pub deferred: Option<(PathBuf, usize)>,
    /// Whether the deferral file is whole, but would be lost by a power failure: the disk was too slow.
    pub is_unsynced: bool,
}

/// Makes turns durable before `deadline`: in the server, the store or a deferral file, which then
/// names `cwd`. Fails only if not even the file can be written.
pub fn deliver(
    settings: &Arc<Resolved>,
    batch: &CaptureBatch,
    cwd: &str,
    fallback: Fallback,
    deadline: Instant,
) -> anyhow::Result<Delivered> {
    let mut delivered = Delivered::default();
    let mut left: &[RawTurn] = &batch.turns;
    let mut encoding = None;
    if let Ok(mut connection) =
        Connection::open_home(&settings.socket, &settings.home, PROBE_TIMEOUT)
    {
        encoding = Encoding::of_large(settings, batch, cwd, ENCODING_DELAY);
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(chunk(left));
            let time = CALL_TIMEOUT.min(remaining(deadline).saturating_sub(deferral_time(left)));
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
        anyhow::bail!(
            "no server answers, and an agent cannot store turns without one; start `hob serve` outside the agent"
        );
    }
    settings.home.prepare_for_capture()?;
    let delay = if fallback == Fallback::Store { ENCODING_DELAY } else { Duration::ZERO };
    let encoding = encoding.or_else(|| Encoding::of_large(settings, batch, cwd, delay));
    if fallback == Fallback::Store {
        // If the store fails or is slow, the turns that are left go into a file. If the store takes
        // them after all, the server recognises them as duplicates.
        let progress = store_on_thread(settings, batch.with_turns(left), deadline);
        while !left.is_empty() {
            let time = remaining(deadline).saturating_sub(deferral_time(left));
            let Ok(part) = progress.recv_timeout(time) else { break };
            delivered.stored += part.stored;
            left = &left[part.turns..];
        }
        if left.is_empty() {
            // The thread closes the store.
            let _ = progress.recv_timeout(remaining(deadline));
        }
        if left.is_empty() {
            return Ok(delivered);
        }
    }
    let (content, turns) = match encoding {
        Some(encoding) => {
            // The file has the whole batch. The server recognises the turns that are stored already.
            delivered.stored = Stored::default();
            (encoding.content(deadline)?, batch.turns.len())
        }
        None => (encode(settings, &batch.with_turns(left), cwd)?, left.len()),
    };
    let folder = settings.home.deferred();
    let cannot_write = |error: io::Error| {
        let folder = folder.display();
        anyhow::anyhow!("cannot write into {folder}: {error}; if the disk is full, free up space")
    };
    let path = deferral::write(&folder, &batch.session, &content, Timestamp::now())
        .map_err(cannot_write)?;
    delivered.is_unsynced = !sync_in_time(&path, deadline).map_err(cannot_write)?;
    delivered.deferred = Some((path, turns));
    Ok(delivered)
}

/// The content of a deferral file that is encoded in advance, on a thread of its own. Dropping it before its delay is over
/// prevents the work.
struct Encoding {
    content: mpsc::Receiver<anyhow::Result<Vec<u8>>>,
    _delay: mpsc::Sender<()>,
}

impl Encoding {
    /// Starts to encode a large batch after a delay. A small one needs no time in advance.
    fn of_large(
        settings: &Arc<Resolved>,
        batch: &CaptureBatch,
        cwd: &str,
        delay: Duration,
    ) -> Option<Encoding> {
        let is_small = batch.turns.len() <= MAX_SMALL_BATCH_TURNS
            && text_bytes(&batch.turns) <= MAX_SMALL_BATCH_BYTES;
        if is_small {
            return None;
        }
        let (sender, content) = mpsc::channel();
        let (_delay, dropped) = mpsc::channel::<()>();
        let (settings, batch, cwd) = (Arc::clone(settings), batch.clone(), cwd.to_owned());
        // Without a thread the receiver is disconnected at once.
        let _ = std::thread::Builder::new().spawn(move || {
            if dropped.recv_timeout(delay) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = sender.send(encode(&settings, &batch, &cwd));
            }
        });
        Some(Encoding { content, _delay })
    }

    /// Waits for the content.
    fn content(self, deadline: Instant) -> anyhow::Result<Vec<u8>> {
        let content = self.content.recv_timeout(remaining(deadline));
        let unmasked = "time ran out while secrets were being masked; no deferral file was written";
        content.map_err(|_| anyhow::anyhow!(unmasked))?
    }
}

/// Returns the content of a deferral file.
fn encode(settings: &Resolved, batch: &CaptureBatch, cwd: &str) -> anyhow::Result<Vec<u8>> {
    let key = sealing_key(settings)?;
    Ok(deferral::encode(batch, cwd, &key, Timestamp::now())?)
}

/// Waits until a deferral file is on the disk. Returns `false` if the disk is too slow.
fn sync_in_time(path: &Path, deadline: Instant) -> io::Result<bool> {
    let time = remaining(deadline);
    if time < MIN_SYNC_TIME {
        return Ok(false);
    }
    let (done, synced) = mpsc::channel();
    let file = path.to_owned();
    // Without a thread the receiver is disconnected at once.
    let _ = std::thread::Builder::new().spawn(move || done.send(hob_files::sync(&file)));
    match synced.recv_timeout(time) {
        Ok(Ok(())) => Ok(true),
        // The server has stored it already.
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Ok(Err(error)) => {
            let _ = owned::remove_file(path);
            Err(error)
        }
        Err(_) => Ok(false),
    }
}

/// Turns that the store took in one transaction.
struct StoredPart {
    turns: usize,
    stored: Stored,
}

/// Writes turns into the store on a thread of its own, because no timeout interrupts a process that
/// waits for a disk. The receiver gets every part in the order of the turns; it is disconnected
/// when the thread ends.
fn store_on_thread(
    settings: &Arc<Resolved>,
    batch: CaptureBatch,
    deadline: Instant,
) -> mpsc::Receiver<StoredPart> {
    let (parts, progress) = mpsc::channel();
    let settings = Arc::clone(settings);
    // Without a thread the receiver is disconnected at once, and the turns go into a file.
    let _ = std::thread::Builder::new().spawn(move || store(&settings, &batch, &parts, deadline));
    progress
}

fn store(
    settings: &Resolved,
    batch: &CaptureBatch,
    parts: &mpsc::Sender<StoredPart>,
    deadline: Instant,
) -> anyhow::Result<()> {
    // During a key rotation no other process may open the store.
    if settings.home.next_key().exists() {
        return Ok(());
    }
    let mut left: &[RawTurn] = &batch.turns;
    let busy = CALL_TIMEOUT.min(remaining(deadline).saturating_sub(deferral_time(left)));
    let runtime = runtime()?;
    let tools = runtime.block_on(open(settings, busy))?;
    while !left.is_empty() && remaining(deadline) > deferral_time(left) {
        let (chunk, rest) = left.split_at(chunk(left).min(MAX_HOOK_TRANSACTION_TURNS));
        // A very long turn is left to the server: storing it would take the time to defer it.
        if text_bytes(chunk) > MAX_HOOK_TURN_BYTES {
            break;
        }
        let turns = chunk.len();
        let stored = tools.engine.capture(&Principal::Owner, batch.with_turns(chunk), Vec::new());
        let stored = runtime.block_on(stored)?;
        if parts.send(StoredPart { turns, stored }).is_err() {
            break;
        }
        left = rest;
    }
    Ok(())
}

/// Returns the time that writing these turns into a deferral file may take.
fn deferral_time(turns: &[RawTurn]) -> Duration {
    let mebibytes = text_bytes(turns) as f64 / f64::from(1 << 20);
    DEFERRAL_RESERVE + DEFERRAL_TIME_PER_MEBIBYTE.mul_f64(mebibytes)
}

fn text_bytes(turns: &[RawTurn]) -> usize {
    turns.iter().map(|turn| turn.text.len()).sum()
}

/// Returns the key to which the secrets in a deferral file are sealed. If the home's key is not
/// available, returns a random one: the secrets are then masked and their originals lost, which is
/// better than leaking them.
fn sealing_key(settings: &Resolved) -> anyhow::Result<SealingKey> {
    keys::sealing_key(&settings.home, settings.passphrase.as_deref())
        .or_else(|_| Ok(OpeningKey::of(&keys::new_data_key()?).sealing_key()))
}

/// Returns how many of these turns fit into one call or transaction; at least one.
pub fn chunk(turns: &[RawTurn]) -> usize {
    let mut bytes = 0;
    let fits = turns.iter().take(MAX_CHUNK_TURNS).take_while(|turn| {
        bytes += turn.text.len();
        bytes <= MAX_CHUNK_BYTES
    });
    fits.count().clamp(1, turns.len().max(1))
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
