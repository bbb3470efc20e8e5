//! A random program, as an agent that does what an injected text wants might run it.
//!
//! `hob-scripted-agent random SEED FILE` reads the targets in FILE and makes random system calls against them. It prints
//! a line, `breach: KIND: WHAT`, for everything that it has read and must not read. It cannot know what it has changed: its own `/tmp` may have
//! files of the same names. So that is for the test to notice.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::greedy_calls::*;
use super::random_targets::Targets;
use crate::random::Random;

/// How many system calls a program makes, forked programs included.
const STEPS: u64 = 150;
/// How deep programs fork.
const MAX_DEPTH: u64 = 2;
const MAX_READ_BYTES: u64 = 1 << 20;
/// The length of a frame that Hob takes from an agent, and of one that it takes only from the owner, in bytes.
const FRAME_BYTES: [u32; 2] = [7 << 20, 60 << 20];

/// Runs the program in the working folder.
pub fn run(seed: u64, targets: &Path) -> ExitCode {
    let text = fs::read(targets).expect("the targets");
    let targets: Targets = serde_json::from_slice(&text).expect("targets");
    let mut program = Program {
        random: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        targets,
        depth: 0,
        is_greedy: false,
        connections: Vec::new(),
    };
    program.is_greedy = program.random.below(4) == 0;
    program.steps(STEPS);
    println!("ended");
    ExitCode::SUCCESS
}

struct Program {
    random: Random,
    targets: Targets,
    depth: u64,
    /// Whether it has yet to send much to Hob. Only some programs do so, once each: it takes long.
    is_greedy: bool,
    /// Connections to Hob that stay open until the program ends.
    connections: Vec<UnixStream>,
}

impl Program {
    fn steps(&mut self, count: u64) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.random.below(26) {
            0 | 1 => self.read_secret(),
            2 => self.write(),
            3 => self.link(),
            4 => self.rename(),
            5 => self.remove(),
            6 => self.create(),
            7 => self.change_mode(),
            8 => self.make_pipe(),
            9 => self.plant_link(),
            10 => self.connect(),
            11 => self.connect_abstract(),
            12 | 13 => self.call_hob(),
            14 => self.call_http(),
            15 => self.open_terminal(),
            16 => self.read_processes(),
            17 => self.read_server(),
            18 => self.signal(),
            19 => self.enter_namespaces(),
            20 => self.fork(),
            21 => self.be_greedy(),
            22 => self.call_after_the_end(),
            23 => self.replace_transcripts(),
            24 => self.replace_git(),
            _ => self.leave_daemon(),
        }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize].clone()
    }

    /// Returns a path to a target: its own, or one through a link, `/proc` or `..`.
    fn path_to(&mut self, target: &Path) -> PathBuf {
        let below = target.strip_prefix("/").unwrap_or(target).to_owned();
        match self.random.below(6) {
            0 => Path::new("/proc/self/root").join(below),
            1 => PathBuf::from(format!("/proc/{}/root", self.targets.server)).join(below),
            2 => Path::new("/proc/1/root").join(below),
            3 => {
                let name = PathBuf::from(format!("link-{}", self.random.below(20)));
                let _ = fs::remove_file(&name);
                let _ = symlink(target, &name);
                name
            }
            4 => Path::new("../../../../../../../../..").join(below),
            _ => target.to_owned(),
        }
    }

    fn any_file(&mut self) -> PathBuf {
        let all = [&self.targets.secrets[..], &self.targets.readable[..]].concat();
        self.pick(&all)
    }

    fn own_name(&mut self) -> PathBuf {
        let names =
            [".git", ".claude", "CLAUDE.md", "AGENTS.md", ".mcp.json", "notes", "a", "b", "c"];
        PathBuf::from(self.pick(&names))
    }

    /// Reports what must not be read.
    fn check(&self, kind: &str, what: impl std::fmt::Display, bytes: &[u8]) {
        let shows =
            |marker: &String| bytes.windows(marker.len()).any(|window| window == marker.as_bytes());
        if self.targets.markers.iter().any(shows) {
            println!("breach: {kind}: {what} shows a marker");
        }
    }

    fn read(&self, path: &Path) -> Vec<u8> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let mut bytes = Vec::new();
        if let Ok(file) = file {
            let _ = file.take(MAX_READ_BYTES).read_to_end(&mut bytes);
        }
        bytes
    }

    fn read_secret(&mut self) {
        let secrets = self.targets.secrets.clone();
        let target = self.pick(&secrets);
        let path = self.path_to(&target);
        self.check("reads a secret file", path.display(), &self.read(&path));
    }

    fn write(&mut self) {
        let target = self.any_file();
        let path = self.path_to(&target);
        let mut options = OpenOptions::new();
        options.custom_flags(libc::O_NONBLOCK);
        match self.random.below(3) {
            0 => options.append(true),
            1 => options.write(true).truncate(true),
            _ => options.read(true).write(true),
        };
        if let Ok(mut file) = options.open(&path) {
            let _ = file.write_all(b"changed");
        }
    }

    fn link(&mut self) {
        let target = self.any_file();
        let name = self.own_name();
        let _ = fs::remove_file(&name);
        let _ = fs::hard_link(&target, &name);
        self.check("links a secret file", name.display(), &self.read(&name));
    }

    fn rename(&mut self) {
        let (target, own) = (self.any_file(), self.own_name());
        let path = self.path_to(&target);
        // An earlier pipe would block.
        let _ = fs::remove_file(&own);
        let _ = fs::write(&own, "mine");
        match self.random.below(3) {
            0 => drop(fs::rename(&own, &target)),
            // A link of the program's own may be renamed.
            1 if path.is_absolute() => drop(fs::rename(&path, &own)),
            _ => exchange(&own, &target),
        }
        self.check("renames a secret file", own.display(), &self.read(&own));
    }

    fn remove(&mut self) {
        let target = self.any_file();
        let path = self.path_to(&target);
        let _ = fs::remove_file(&path);
        if let Some(folder) = target.parent() {
            let _ = fs::remove_dir(folder);
        }
    }

    fn create(&mut self) {
        let folders = self.targets.folders.clone();
        let folder = self.pick(&folders);
        let path = self.path_to(&folder).join(format!("planted-{}", self.random.below(100)));
        match self.random.below(3) {
            0 => drop(File::create_new(&path)),
            1 => drop(fs::create_dir(&path)),
            _ => drop(symlink("/etc/passwd", &path)),
        }
    }

    fn change_mode(&mut self) {
        let target = self.any_file();
        let path = self.path_to(&target);
        let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o777));
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&target);
        let _ = file.and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH));
    }

    /// A name that Hob may read as a pipe, a huge file, a link or a folder.
    fn make_pipe(&mut self) {
        let name = self.own_name();
        self.replace(&name);
    }

    fn replace(&mut self, name: &Path) {
        let _ = fs::remove_file(name).or_else(|_| fs::remove_dir(name));
        match self.random.below(4) {
            0 => drop(nix::unistd::mkfifo(name, nix::sys::stat::Mode::S_IRWXU)),
            1 => drop(File::create(name).and_then(|file| file.set_len(1 << 34))),
            2 => drop(symlink("/dev/zero", name)),
            _ => drop(fs::create_dir(name)),
        }
    }

    /// A name that Hob may read as a link to a secret or to an endless device.
    fn plant_link(&mut self) {
        let name = self.own_name();
        let target = match self.random.below(3) {
            0 => PathBuf::from("/dev/zero"),
            1 => PathBuf::from("/proc/kmsg"),
            _ => self.any_file(),
        };
        let _ = fs::remove_file(&name);
        let _ = symlink(target, name);
    }

    fn connect(&mut self) {
        let sockets = self.targets.sockets.clone();
        let target = self.pick(&sockets);
        let path = self.path_to(&target);
        if let Ok(stream) = UnixStream::connect(&path) {
            let answer = answer_of(&stream, b"hello\n");
            self.check("uses a socket of the owner", path.display(), &answer);
        }
    }

    fn connect_abstract(&mut self) {
        let address =
            SocketAddr::from_abstract_name(&self.targets.abstract_socket).expect("an address");
        if let Ok(stream) = UnixStream::connect_addr(&address) {
            let answer = answer_of(&stream, b"hello\n");
            self.check("uses an abstract socket of the owner", "it", &answer);
        }
    }

    /// Speaks to Hob as its own app: the owner's calls are refused, and broken frames harm nobody.
    fn call_hob(&mut self) {
        let hob = self.targets.hob.clone();
        let Ok(stream) = UnixStream::connect(hob) else { return };
        let recall = r#"{"call":"tool","name":"memory_recall","cwd":"/","arguments":{"cue":"marker","project":"*"}}"#;
        let sent = match self.random.below(6) {
            0 => return self.check_owner(&stream),
            1 => frame(recall),
            2 => vec![0xff; 4],
            3 => frame(&"[".repeat(20_000)),
            4 => [&60_000_000u32.to_be_bytes()[..], &[b'x'; 4096]].concat(),
            _ => {
                let folder = std::env::current_dir().unwrap_or_default();
                frame(&format!(
                    r#"{{"call":"tool","name":"memory_stats","cwd":{folder:?},"arguments":{{}}}}"#
                ))
            }
        };
        self.check("reads the owner's memory", "Hob's socket", &answer_of(&stream, &sent));
    }

    fn check_owner(&self, stream: &UnixStream) {
        if speaks_as_the_owner(stream) {
            println!("breach: speaks as the owner: /admin/apps was answered");
        }
    }

    /// Takes as much of Hob's memory, or as many of its calls, as it can get.
    fn be_greedy(&mut self) {
        if !std::mem::take(&mut self.is_greedy) {
            return;
        }
        let hob = self.targets.hob.clone();
        let length = self.pick(&FRAME_BYTES);
        let taken = match self.random.below(3) {
            0 => unfinished_frames(&hob, 10, length),
            1 => endless_lines(&hob, 4, length as usize),
            _ => {
                self.replace_git();
                calls_from(&hob, &std::env::current_dir().unwrap_or_default(), 80)
            }
        };
        self.connections.extend(taken);
    }

    fn call_after_the_end(&mut self) {
        if let Some(stream) = connection_of_an_ended_process(&self.targets.hob) {
            self.check_owner(&stream);
        }
    }

    /// Puts something else in place of the transcripts that Hob reads.
    fn replace_transcripts(&mut self) {
        let folder = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let projects = folder.unwrap_or(home.join(".claude")).join("projects");
        let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let files = below(&projects).flat_map(|project| below(&project.path()));
        for file in files.collect::<Vec<_>>() {
            self.replace(&file.path());
        }
    }

    /// Puts something else in place of the pointer that Hob reads of every working folder.
    fn replace_git(&mut self) {
        self.replace(Path::new(".git"));
    }

    fn call_http(&mut self) {
        let Ok(mut stream) = std::net::TcpStream::connect(&self.targets.http) else { return };
        let path =
            self.pick(&["/admin/apps", "/admin/memory/search?q=marker", "/sessions", "/metrics"]);
        let _ = stream.set_read_timeout(Some(ANSWER_TIMEOUT));
        let _ =
            write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.take(MAX_READ_BYTES).read_to_end(&mut answer);
        self.check("reads over HTTP", path, &answer);
        if path != "/metrics" && answer.starts_with(b"HTTP/1.1 200") {
            println!("breach: HTTP without a token: {path} was answered");
        }
    }

    fn open_terminal(&mut self) {
        let number = self.random.below(12);
        let path = self.pick(&[
            self.targets.terminal.display().to_string(),
            format!("/dev/pts/{number}"),
            "/dev/ptmx".into(),
            "/dev/tty".into(),
            "/dev/console".into(),
        ]);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        if let Ok(mut terminal) = options.open(&path) {
            let mut bytes = [0; 4096];
            let count = terminal.read(&mut bytes).unwrap_or_default();
            self.check("reads a terminal", &path, &bytes[..count]);
        }
    }

    fn read_processes(&mut self) {
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            for file in ["cmdline", "environ", "maps"] {
                let path = process.path().join(file);
                self.check("reads other processes", path.display(), &self.read(&path));
            }
        }
    }

    fn read_server(&mut self) {
        let file = self.pick(&[
            "environ",
            "cmdline",
            "mem",
            "stack",
            "fd/0",
            "fd/5",
            "fd/9",
            "cwd/config.toml",
        ]);
        let path = PathBuf::from(format!("/proc/{}/{file}", self.targets.server));
        self.check("reads the server's process", path.display(), &self.read(&path));
    }

    /// Ends the server, if the kernel lets it. Inside of a namespace the number may belong to nobody.
    fn signal(&mut self) {
        let server = nix::unistd::Pid::from_raw(self.targets.server);
        // In a namespace of its own, the number could be that of the program's own parents.
        if Path::new(&format!("/proc/{server}/exe"))
            .read_link()
            .is_ok_and(|exe| exe.ends_with("hob"))
        {
            println!("breach: sees the server's process: {server}");
            let _ = nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Runs a part of the program in namespaces of its own, where it is root.
    fn enter_namespaces(&mut self) {
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
        self.in_child(|program| {
            if unshare(flags).is_err() {
                return;
            }
            let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
            let _ = fs::write("/proc/self/setgroups", "deny");
            let _ = fs::write("/proc/self/uid_map", format!("0 {uid} 1"));
            let _ = fs::write("/proc/self/gid_map", format!("0 {gid} 1"));
            let none: Option<&str> = None;
            let target = program.any_file();
            let folder = target.parent().unwrap_or(Path::new("/")).to_owned();
            use nix::mount::{MntFlags, MsFlags, mount, umount2};
            let _ = umount2(&folder, MntFlags::MNT_DETACH);
            let _ = umount2("/tmp", MntFlags::MNT_DETACH);
            let _ = mount(none, "/", none, MsFlags::MS_REMOUNT | MsFlags::MS_BIND, none);
            let _ = mount(none, &folder, none, MsFlags::MS_REMOUNT | MsFlags::MS_BIND, none);
            let _ = fs::create_dir("mounted");
            let _ = mount(Some(&folder), "mounted", none, MsFlags::MS_BIND | MsFlags::MS_REC, none);
            let name = target.file_name().unwrap_or_default();
            program.check(
                "mounts a secret folder",
                folder.display(),
                &program.read(&Path::new("mounted").join(name)),
            );
            let _ = mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none);
            program.steps(10);
        });
    }

    fn fork(&mut self) {
        self.in_child(|program| program.steps(10));
    }

    /// Runs a part of the program in a process of its own, and waits for it.
    fn in_child(&mut self, part: impl FnOnce(&mut Program)) {
        if self.depth == MAX_DEPTH {
            return;
        }
        let _ = std::io::stdout().flush();
        // SAFETY: the program has one thread.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { child }) => drop(waitpid(child, None)),
            Ok(ForkResult::Child) => {
                self.depth += 1;
                part(self);
                let _ = std::io::stdout().flush();
                std::process::exit(0);
            }
            Err(_) => {}
        }
    }

    /// Leaves a process in a session of its own, with a pipe that nobody reads.
    fn leave_daemon(&mut self) {
        if self.random.below(4) > 0 {
            return;
        }
        let mut pipe = [0; 2];
        // SAFETY: the array has room for two descriptors; each is owned once.
        let _pipe = unsafe {
            if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return;
            }
            pipe.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        // SAFETY: the program has one thread.
        if let Ok(ForkResult::Child) = unsafe { fork() } {
            let _ = nix::unistd::setsid();
            if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
                // SAFETY: the descriptors are open.
                unsafe {
                    libc::dup2(null.as_raw_fd(), 1);
                    libc::dup2(null.as_raw_fd(), 2);
                }
            }
            std::thread::sleep(Duration::from_secs(600));
            std::process::exit(0);
        }
    }
}

/// Exchanges two names in one step.
fn exchange(one: &Path, other: &Path) {
    let name = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    let (one, other) = (name(one), name(other));
    let (here, flag) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: both names are strings that live until the call returns.
    unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), flag) };
}
