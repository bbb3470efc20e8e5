//! A server with secrets, for the random programs: what they attack, and how it is noticed that they have succeeded.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_testkit::agent::random_targets::Targets;
use hob_testkit::{TestHome, program};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;
use crate::memory_setup::{capture, said, transcript};
use crate::random_programs_watch::*;

/// The kernel gives a server no more address space than this, in bytes, whatever the test itself is doing.
const MAX_ADDRESS_BYTES: u64 = 6 << 30;
/// How long a program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(90);
/// Longer than the server takes to look at the transcript of an agent in a terminal again.
const TRANSCRIPT_INTERVAL: Duration = Duration::from_millis(500);

/// Answers every connection with the marker, until the test ends.
fn serve_marker(listener: UnixListener, marker: &str) {
    let marker = marker.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(marker.as_bytes());
        }
    });
}

/// What can be seen of a file: its mode, owner, time of change and content.
type Seen = (u32, u32, i64, Vec<u8>);

/// Returns everything below some folders and files, except for what Hob itself changes.
fn snapshot(roots: &[PathBuf], excepted: &[PathBuf]) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut left = roots.to_vec();
    while let Some(path) = left.pop() {
        if excepted.contains(&path) {
            continue;
        }
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let content = match metadata.is_file() {
            true => fs::read(&path).unwrap_or_default(),
            false => Vec::new(),
        };
        let at = if metadata.is_file() { metadata.mtime() } else { 0 };
        found.insert(path.clone(), (metadata.permissions().mode(), metadata.uid(), at, content));
        if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()),
            );
        }
    }
    found
}

/// A process that is killed with the test.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session in which programs run.
pub struct ProgramSession {
    id: String,
    folder: PathBuf,
    /// Whether Hob reads a transcript of its agent. A program may replace it, and then the turn does not end.
    has_transcript: bool,
}

/// A server with secrets, and what programs attack.
pub struct Setup {
    pub api: Api,
    pub targets: Targets,
    pub marker: String,
    /// The token and the session of another app.
    pub other: String,
    pub theirs: String,
    roots: Vec<PathBuf>,
    /// What Hob and its agents may change below the roots.
    excepted: Vec<PathBuf>,
    before: BTreeMap<PathBuf, Seen>,
    echo: String,
    /// Both ends of the owner's terminal.
    terminal: (OwnedFd, OwnedFd),
    watchdog: Watchdog,
    _process: KilledAtEnd,
}

/// Starts a server whose ACP agents have this sandbox.
pub fn setup(sandbox: &str) -> Setup {
    let marker = format!("lanternfish{}{sandbox}", std::process::id());
    // Not in `/tmp`, of which an agent has its own: what is elsewhere can be seen.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_writable = nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok();
    let home = TestHome::new_in(if is_writable { folder } else { Path::new("/var/tmp") });
    configure(&home, "");
    let (token, other) = (home.app("tests"), home.app("other"));
    let user = home.user_home().canonicalize().unwrap();
    let owned = |name: &str, text: &str| {
        let path = user.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let hidden = [".ssh/id_ed25519", ".aws/credentials", ".netrc"].map(|name| owned(name, &marker));
    let readable = [".bashrc", "project/main.rs", ".config/systemd/user/x.service"];
    let readable = readable.map(|name| owned(name, "open to readers\n"));
    let bus = user.join("bus.sock");
    serve_marker(UnixListener::bind(&bus).unwrap(), &marker);
    let name = format!("hob-test-{marker}-{}", home.folder().display());
    let name = name[name.len().saturating_sub(90)..].to_owned();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    serve_marker(UnixListener::bind_addr(&address).unwrap(), &marker);
    let terminal = nix::pty::openpty(None, None).unwrap();
    // A process of the owner with a secret among its arguments. It ends with its input.
    let mut process = Command::new("sh");
    process.args(["-c", "read line", &marker]).stdin(Stdio::piped());
    let process = KilledAtEnd(process.spawn().unwrap());
    let server = home.serve_with(|command| {
        command.env("SECRET_OF_THE_SERVER", &marker).env("HOB_AGENTS_ACP_SANDBOX", sandbox);
        // SAFETY: setrlimit is async-signal-safe, and the closure does nothing else.
        unsafe {
            command.pre_exec(|| {
                let (kind, most) = (Resource::RLIMIT_AS, MAX_ADDRESS_BYTES);
                Ok(setrlimit(kind, most, most)?)
            });
        }
    });
    let watchdog = Watchdog::new(server.pid());
    let api = Api::new(Backend::File, server, home, &token);
    let record = said("s", 0, "user", &format!("the owners {marker}"));
    let path = transcript(&api.home, "t.jsonl", &[record]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    fs::remove_file(&path).unwrap();
    // The other app's agent keeps a file, and its prompt is a secret too.
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let body = json!({"prompt": format!("[[note {marker}]] [[say ok]]")});
    let turn = format!("/sessions/{theirs}/turn");
    assert_eq!(api.call_as(&other, "POST", &turn, &[], &body).status, 200);
    let hob = api.home.hob_home().canonicalize().unwrap();
    let kept = hob.join("workspaces").join(&theirs).join("notes");
    assert!(fs::read_to_string(&kept).unwrap().contains(&marker));
    // The scripted agent's conversations are open to all apps.
    let conversations = user.join(".hob-scripted");
    fs::remove_dir_all(&conversations).unwrap();
    fs::create_dir_all(&conversations).unwrap();
    let own_files = ["key", "admin.token", "config.toml"].map(|name| hob.join(name));
    let text = |path: &PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let tokens = own_files[..2].iter().filter_map(text).filter(|text| text.len() > 8);
    let markers = [marker.clone()].into_iter().chain(tokens).collect();
    let roots = [vec![user.clone(), kept.clone()], own_files.to_vec()].concat();
    // An earlier build had its `claude` write there.
    let excepted =
        vec![conversations, bus.clone(), user.join(".claude"), user.join(".claude.json")];
    let targets = Targets {
        secrets: [hidden.to_vec(), vec![kept], own_files.to_vec()].concat(),
        readable: readable.to_vec(),
        folders: vec![
            user.clone(),
            user.join(".ssh"),
            user.join(".config/systemd/user"),
            hob.clone(),
        ],
        sockets: vec![bus],
        terminal: nix::unistd::ttyname(&terminal.slave).unwrap(),
        abstract_socket: name,
        hob: hob.join("hob.sock"),
        http: api.server.address().to_owned(),
        server: api.server.pid(),
        markers,
    };
    let before = snapshot(&roots, &excepted);
    let terminal = (terminal.master, terminal.slave);
    let echo = serve_echo();
    Setup {
        api,
        targets,
        marker,
        other,
        theirs,
        roots,
        excepted,
        before,
        echo,
        terminal,
        watchdog,
        _process: process,
    }
}

impl Setup {
    /// Starts a session of one of the agents `acp` and `claude`. Returns `None` if the server does not answer.
    pub fn session(&self, agent: &str) -> Option<ProgramSession> {
        let body = json!({"agent": agent, "permissions": "allow"});
        let answer = self.api.try_call("POST", "/sessions", &[], &body).ok()?;
        let text = |key: &str| Some(answer.json()[key].as_str()?.to_owned());
        let (id, folder) = (text("session_id")?, text("cwd")?);
        Some(ProgramSession { id, folder: folder.into(), has_transcript: agent == "claude" })
    }

    /// Closes a session. Returns `None` if the server does not answer.
    pub fn close(&self, session: &ProgramSession) -> Option<()> {
        let path = format!("/sessions/{}", session.id);
        let answer = self.api.try_call("DELETE", &path, &[], &Value::Null).ok()?;
        (answer.status == 200).then_some(())
    }

    /// Runs the program of a seed in a session. Returns the promises that it has broken, and what it took.
    pub fn breaches(&mut self, session: &ProgramSession, seed: u64) -> (Vec<Breach>, Delays) {
        let _ = tcflush(self.terminal.1.as_fd(), FlushArg::TCIFLUSH);
        let typed = format!("{}\n", self.marker);
        nix::unistd::write(&self.terminal.0, typed.as_bytes()).unwrap();
        let (said, delays) = self.measure(|| self.run(session, seed));
        let said =
            said.unwrap_or_else(|turn| format!("the server has stopped, or the turn: {turn}"));
        let lines = said.lines().filter_map(|line| line.strip_prefix("breach: "));
        let mut found: Vec<Breach> = lines
            .map(|line| line.split_once(": ").unwrap_or((line, "")))
            .map(|(kind, detail)| Breach::new(kind, detail))
            .collect();
        if !said.trim_end().ends_with("ended") {
            found.push(Breach::new("does not come to its end", &said));
        }
        found.extend(delays.breaches());
        found.extend(self.changes());
        (found, delays)
    }

    /// Runs the program of a seed and returns what it says. The error is the turn, if the server answers.
    fn run(&self, session: &ProgramSession, seed: u64) -> Result<String, Value> {
        let targets = serde_json::to_vec(&self.targets).unwrap();
        fs::write(session.folder.join("targets.json"), targets).unwrap();
        let agent = program("hob-scripted-agent").display().to_string();
        let command = format!(
            "timeout 60 {agent} random {seed} targets.json 2>&1 < /dev/null | head -c 20000 > said; mv said said-{seed}"
        );
        let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
        let call = |method: &str, path: &str, body: &Value| {
            let path = format!("/sessions/{}/{path}", session.id);
            self.api.try_call(method, &path, &[ASYNC], body).map_or(Value::Null, |a| a.json())
        };
        let turn = call("POST", "turn", &json!({"prompt": prompt}));
        let turn = format!("turns/{}", turn["turn_index"].as_u64().ok_or(turn)?);
        let (started, file) = (Instant::now(), session.folder.join(format!("said-{seed}")));
        let said = loop {
            if let Ok(said) = fs::read_to_string(&file) {
                break said;
            }
            let is_timeout = started.elapsed() > PROGRAM_TIMEOUT;
            if is_timeout || session.has_transcript || !self.is_alive() {
                let now = call("GET", &turn, &Value::Null);
                // Hob may end an agent whose transcript is not one, and then the program ends with it.
                if session.has_transcript && now["state"] == "failed" {
                    let said = fs::read_to_string(session.folder.join("said")).unwrap_or_default();
                    return Ok(format!("{said}\nended"));
                }
                if is_timeout || !self.is_alive() {
                    return Err(now);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let ended = Instant::now();
        loop {
            let is_over = match session.has_transcript {
                true => ended.elapsed() > TRANSCRIPT_INTERVAL,
                false => call("GET", &turn, &Value::Null)["state"] == "finished",
            };
            if is_over {
                return Ok(said);
            }
            if ended.elapsed() > PROGRAM_TIMEOUT || !self.is_alive() {
                return Err(call("GET", &turn, &Value::Null));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns whether the server runs.
    pub fn is_alive(&self) -> bool {
        resident_mb(self.api.server.pid()).is_some()
    }

    /// Kills the server, which frees everything that waits for it.
    pub fn kill(&self) {
        let _ = kill(Pid::from_raw(self.api.server.pid()), Signal::SIGKILL);
    }

    /// Asks the server again and again while `work` runs, as a stranger and as the owner. Kills it if it does not answer.
    /// The memory is the most since the last program ended.
    fn measure<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, Delays) {
        let is_over = AtomicBool::new(false);
        let mut delays = Delays::default();
        let (address, socket) = (self.targets.http.clone(), self.targets.hob.clone());
        let server = self.api.server.pid();
        let stop = || self.kill();
        let ask_all = |ask: &(dyn Fn() -> bool + Sync)| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Acquire) && resident_mb(server).is_some() {
                let asked = Instant::now();
                if !ask() {
                    stop();
                }
                longest = longest.max(asked.elapsed());
                std::thread::sleep(Duration::from_millis(15));
            }
            longest
        };
        let done = std::thread::scope(|scope| {
            let stranger = scope.spawn(|| ask_all(&|| stranger_is_answered(&address)));
            let owner = scope.spawn(|| ask_all(&|| owner_is_answered(&socket)));
            let machine = scope.spawn(|| ask_all(&|| echo_is_answered(&self.echo)));
            let ended = SetAtEnd(&is_over);
            let done = work();
            drop(ended);
            delays.server = stranger.join().unwrap();
            delays.owner = owner.join().unwrap();
            delays.machine = machine.join().unwrap();
            delays.resident_mb = self.watchdog.take_most_mb();
            done
        });
        (done, delays)
    }

    /// Returns what was changed, created or removed since the last call.
    pub fn changes(&mut self) -> Vec<Breach> {
        let now = snapshot(&self.roots, &self.excepted);
        let before = std::mem::replace(&mut self.before, now);
        let mut found = Vec::new();
        for path in before.keys().chain(self.before.keys().filter(|p| !before.contains_key(*p))) {
            let kind = match (before.get(path), self.before.get(path)) {
                (None, _) => "creates a file outside",
                (_, None) => "removes a file outside",
                (Some(was), Some(is)) if was.3 != is.3 => "changes a file outside",
                (Some(was), Some(is)) if was.0 != is.0 => "changes a mode outside",
                (Some(was), Some(is)) if was != is => "changes an owner or a time outside",
                _ => continue,
            };
            found.push(Breach::new(kind, path.display()));
        }
        found
    }
}
