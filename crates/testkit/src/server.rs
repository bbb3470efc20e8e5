//! A `hob serve` on a temporary home, used from outside.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

pub use crate::http::Answer;

use crate::client::Client;
use crate::http;
use crate::leak::{files_below, processes_with};
use crate::programs::program;
use crate::random::Random;
use crate::timed_output::output_in_time;
use crate::wait::wait_until;

/// A temporary `$HOB_HOME`, with a temporary `$HOME` for everything that is started on it.
pub struct TestHome {
    /// Shared with sibling homes.
    folder: Arc<TempDir>,
    hob: PathBuf,
    user: PathBuf,
}

impl TestHome {
    pub fn new() -> TestHome {
        TestHome::new_in(&std::env::temp_dir())
    }

    /// Creates a temporary home in this folder.
    pub fn new_in(folder: &Path) -> TestHome {
        let folder = tempfile::Builder::new().prefix("hob-test-").tempdir_in(folder);
        let folder = folder.expect("a folder");
        let (hob, user) = (folder.path().join("hob"), folder.path().join("user"));
        fs::create_dir_all(&user).expect("a user's folder");
        TestHome { folder: Arc::new(folder), hob, user }
    }

    /// Returns a home for another node: a `$HOB_HOME` of its own with the same settings, key and admin token, where they
    /// exist. Workspaces and `$HOME` are shared, as on machines that share a disk.
    pub fn sibling(&self, number: usize) -> TestHome {
        let hob = self.folder.path().join(format!("hob-{number}"));
        fs::create_dir_all(&hob).expect("a home");
        for name in ["config.toml", "key", "admin.token"] {
            if self.hob.join(name).exists() {
                fs::copy(self.hob.join(name), hob.join(name)).expect("a copy");
            }
        }
        let _ = std::os::unix::fs::symlink(self.hob.join("workspaces"), hob.join("workspaces"));
        TestHome { folder: self.folder.clone(), hob, user: self.user.clone() }
    }

    /// Gives the shared `$HOME` another name, by which the processes of this home are told from those of its siblings.
    pub fn with_own_user_name(mut self, number: usize) -> TestHome {
        let name = self.folder.path().join(format!("{number}-user"));
        let _ = std::os::unix::fs::symlink(&self.user, &name);
        self.user = name;
        self
    }

    /// Returns the folder of this home and its siblings.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns `$HOB_HOME`. It does not exist until Hob creates it.
    pub fn hob_home(&self) -> PathBuf {
        self.hob.clone()
    }

    /// Returns `$HOME` of Hob and its agents.
    pub fn user_home(&self) -> PathBuf {
        self.user.clone()
    }

    /// Writes `config.toml`.
    pub fn configure(&self, config: &str) {
        fs::create_dir_all(self.hob_home()).expect("the home");
        fs::write(self.hob_home().join("config.toml"), config).expect("config.toml");
    }

    /// Returns the part of `config.toml` that defines a scripted agent.
    pub fn scripted_agent(name: &str, driver: &str, arguments: &[&str]) -> String {
        let agent = program("hob-scripted-agent");
        let command: Vec<String> = std::iter::once(agent.display().to_string())
            .chain(arguments.iter().map(|argument| argument.to_string()))
            .collect();
        // As an ACP agent it keeps its conversations there.
        let writable = "writable = [\"~/.hob-scripted\"]";
        format!("[agents.{name}]\ndriver = \"{driver}\"\ncommand = {command:?}\n{writable}\n")
    }

    /// Returns a `hob` command on this home. Its environment has only `PATH`, `HOME`, `HOB_HOME` and a
    /// long time limit for hooks: whether a hook stores a turn must not depend on how busy the machine
    /// is. A test of the limit itself removes `HOB_MEMORY_HOOK_TIMEOUT_SECS`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("hob"));
        command.args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.user_home()).env("HOB_HOME", self.hob_home());
        command.env("HOB_MEMORY_HOOK_TIMEOUT_SECS", "60");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a `hob` command to its end. A command that does not end in time is killed, and the test fails.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Output {
        output_in_time(self.command(arguments))
    }

    /// Creates an app and returns its token.
    pub fn app(&self, name: &str) -> String {
        let output = self.run(&["app", "create", name, "--json"]);
        assert!(output.status.success(), "{output:?}");
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        value["token"].as_str().expect("a token").to_owned()
    }

    /// Starts `hob serve` on a free port and waits until it listens.
    pub fn serve(&self) -> HobServer {
        self.serve_with(|_| {})
    }

    /// Starts `hob serve` like [`TestHome::serve`]; `adjust` may change the command.
    pub fn serve_with(&self, adjust: impl FnOnce(&mut Command)) -> HobServer {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        adjust(&mut command);
        self.serve_by(command)
    }

    /// Starts a command that becomes `hob serve` on this home, and waits until it listens.
    pub fn serve_by(&self, mut command: Command) -> HobServer {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("hob serve starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).expect("the line on stdout");
        let Some(url) = line.trim_end().strip_prefix("hob listening on ") else {
            let mut stderr = String::new();
            let _ = child.stderr.take().expect("stderr").read_to_string(&mut stderr);
            let status = child.wait();
            panic!("hob serve printed {line:?} and ended with {status:?}: {stderr}");
        };
        // Drained, so that a full pipe never blocks a server that logs much.
        let mut stderr = child.stderr.take().expect("stderr");
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        HobServer {
            url: url.to_owned(),
            child: Some(child),
            hob_home: self.hob_home(),
            user_home: self.user_home(),
            killed: false,
            peers: Vec::new(),
            choice: Mutex::new(Random::new(1)),
        }
    }
}

impl Default for TestHome {
    fn default() -> TestHome {
        TestHome::new()
    }
}

/// A running `hob serve`. Dropping it kills it, and then no process of it may be left. After an orderly end
/// no temporary file may be left either.
pub struct HobServer {
    url: String,
    child: Option<Child>,
    hob_home: PathBuf,
    user_home: PathBuf,
    /// After a kill the test itself checks what is left.
    killed: bool,
    /// The other nodes of a cluster that is addressed as one server.
    peers: Vec<HobServer>,
    choice: Mutex<Random>,
}

impl HobServer {
    /// Joins this server and others into one, as a load balancer does: every request goes to one of them, chosen at
    /// random, and signals go to all. They must have the same `$HOME`.
    pub fn with_peers(mut self, peers: Vec<HobServer>, seed: u64) -> HobServer {
        self.peers = peers;
        self.choice = Mutex::new(Random::new(seed));
        self
    }

    /// Returns one of the nodes, chosen at random.
    fn any(&self) -> &HobServer {
        let nodes = 1 + self.peers.len() as u64;
        let chosen = self.choice.lock().unwrap_or_else(PoisonError::into_inner).below(nodes);
        self.peers.get(chosen as usize).unwrap_or(self)
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.any().url
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.url().trim_start_matches("http://")
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("it runs").id() as i32
    }

    /// Sends a request with any method, token and JSON body.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&[u8]>,
    ) -> Answer {
        self.call_with(method, path, token, body.map(|body| ("application/json", body)))
    }

    /// Sends a request with any method and token, and a body with its content type.
    pub fn call_with(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<(&str, &[u8])>,
    ) -> Answer {
        let kind = body.map(|(kind, _)| ("content-type", kind));
        let headers: Vec<(&str, &str)> = kind.into_iter().collect();
        self.request(method, path, token, &headers, body.map(|(_, body)| body).unwrap_or_default())
    }

    /// Sends a request with any method, token, headers and body, and reads the whole answer.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let url = format!("{}{path}", self.url());
        http::request(method, &url, token, headers, body).expect("the server answers")
    }

    /// Sends a request and leaves the answer's body to be read.
    #[track_caller]
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> ureq::http::Response<ureq::Body> {
        let url = format!("{}{path}", self.url());
        http::send(method, &url, headers, body).expect("the server answers")
    }

    /// Returns a client with this token. It uses all nodes that are addressed as this server.
    pub fn client(&self, token: &str) -> Client {
        let nodes = std::iter::once(self).chain(&self.peers);
        let addresses = nodes.map(|node| node.url.trim_start_matches("http://").to_owned());
        let seed = self.choice.lock().unwrap_or_else(PoisonError::into_inner).below(1 << 32);
        Client::new(addresses.collect(), token, seed + 1)
    }

    /// Uploads a file as the only part of a form.
    pub fn upload(&self, token: Option<&str>, name: &str, bytes: &[u8]) -> Answer {
        let mut body = format!(
            "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n--edge--\r\n");
        self.call_with("POST", "/files", token, Some(("multipart/form-data; boundary=edge", &body)))
    }

    pub fn get(&self, path: &str, token: Option<&str>) -> Answer {
        self.call("GET", path, token, None)
    }

    pub fn post(&self, path: &str, token: Option<&str>, body: &Value) -> Answer {
        self.call("POST", path, token, Some(body.to_string().as_bytes()))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, signal).expect("a live server");
        self.peers.iter().for_each(|peer| peer.signal(signal));
    }

    /// Stops the server with SIGTERM and returns its exit status.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.wait()
    }

    /// Kills the server with SIGKILL and reaps it. Its agents may still be ending.
    pub fn kill(mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        self.killed = true;
        self.ended();
        self.peers.drain(..).for_each(|mut peer| {
            peer.killed = true;
            peer.ended();
        });
    }

    /// Waits for an orderly end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = self.ended();
        for peer in &mut self.peers {
            let other = peer.ended();
            status = if status.success() { other } else { status };
        }
        assert_eq!(self.processes(), [0; 0], "no process is left after an orderly end");
        self.assert_no_temporary_file();
        self.peers.iter().for_each(HobServer::assert_no_temporary_file);
        status
    }

    fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        wait_until("hob serve ends", || child.try_wait().expect("a child"))
    }

    /// Checks that no temporary file is left. Another node that shares the folder may be writing one, which goes soon.
    fn assert_no_temporary_file(&self) {
        let temporary = || -> Vec<PathBuf> {
            files_below(&self.hob_home)
                .into_iter()
                .filter(|path| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let below = |folder: &str| path.strip_prefix(self.hob_home.join(folder)).ok();
                    // Sessions keep their folders; runs do not.
                    let of_run = |rest: &Path| rest.to_string_lossy().starts_with("run-");
                    name.ends_with(".tmp")
                        || below("run").is_some()
                        || below("workspaces").is_some_and(of_run)
                })
                .collect()
        };
        let left = temporary();
        wait_until(&format!("no temporary file is left of {left:?}"), || {
            let now = temporary();
            left.iter().all(|path| !now.contains(path)).then_some(())
        });
    }

    /// Returns the processes that it has started, shims included.
    pub fn descendants(&self) -> Vec<i32> {
        let nodes = self.peers.iter().chain([self]);
        let trees = nodes.flat_map(|node| hob_child::tree::descendants(node.pid()));
        trees.map(|process| process.pid).collect()
    }

    /// Returns the server and everything it started, without shims: they have no environment.
    fn processes(&self) -> Vec<i32> {
        processes_with(&format!("HOME={}", self.user_home.display()))
    }
}

impl Drop for HobServer {
    fn drop(&mut self) {
        let peers = self.peers.iter_mut().filter_map(|peer| peer.child.take());
        for mut child in peers.chain(self.child.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !self.killed && !std::thread::panicking() {
            wait_until("no process of a server is left", || {
                self.processes().is_empty().then_some(())
            });
        }
    }
}

/// Returns whether any file below a folder contains this text. For secrets that must not be there.
pub fn folder_holds(folder: &Path, text: &str) -> bool {
    files_below(folder).iter().any(|path| {
        fs::read(path)
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    })
}
