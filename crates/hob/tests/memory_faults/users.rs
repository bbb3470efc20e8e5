//! Another user of the same machine can read nothing and gets no answer.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use hob_testkit::leak::files_below;
use hob_testkit::{TestHome, program, wait_until};
use serde_json::json;

use crate::hooks::{Watch, finish, hook_input, serve, wait_drained};
use crate::transcript::{Shape, Transcript, USER, assert_stored};

const NOBODY: u32 = 65534;

/// Returns a command of the user `nobody`, with a copy of Hob that everyone may run.
fn as_nobody(command: &Command, hob: &Path) -> Command {
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(hob);
    other.args(command.get_args()).env_clear().stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        other.env(name, value.unwrap_or_default());
    }
    other
}

/// Opens everything around Hob's home to all, so that nothing but Hob's own modes protects it.
/// Returns the path of a Hob that the user `nobody` may run; `None` without root.
fn open_house(home: &TestHome) -> Option<std::path::PathBuf> {
    if !nix::unistd::geteuid().is_root() {
        println!("users: not root, so no other user can be tried");
        return None;
    }
    let around = home.user_home();
    let around = around.parent().unwrap();
    fs::set_permissions(around, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home.user_home(), Permissions::from_mode(0o777)).unwrap();
    let hob = around.join("hob-of-all");
    fs::copy(program("hob"), &hob).unwrap();
    fs::set_permissions(&hob, Permissions::from_mode(0o755)).unwrap();
    Some(hob)
}

#[test]
fn other_users_read_nothing() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let Some(hob) = open_house(&home) else { return };
    let mut transcript = Transcript::new(&home, "private", Shape::Claude);
    transcript.say(USER, "the needle in the haystack");
    let server = serve(&home);
    assert_eq!(watch.capture(&home, &[], transcript.path()).status(), "captured");
    let cwd = transcript.cwd.clone();
    let _ = fs::create_dir_all(&cwd);
    for with_server in [true, false] {
        let all: [&[&str]; 6] = [
            &["recall", "needle", "--project", "*"],
            &["export"],
            &["status"],
            &["doctor"],
            &["session-start", "--cwd", &cwd],
            &["import", transcript.path()],
        ];
        for arguments in all {
            let mut command = as_nobody(&home.command(arguments), &hob);
            command.current_dir("/");
            let done = finish(command, "");
            let said = format!("{}{}", done.stdout, done.stderr);
            assert!(!said.contains("haystack"), "{arguments:?}: {done:?}");
            if ["recall", "export", "import"].contains(&arguments[0]) && with_server {
                assert_ne!(done.code, Some(0), "{arguments:?}: {done:?}");
            }
        }
        // A hook of another user ends well and changes nothing.
        for flags in [&["--no-spawn"][..], &[]] {
            let command = crate::hooks::capture_command(&home, flags, transcript.path());
            assert_eq!(watch.run(as_nobody(&command, &hob), "").status(), "failed");
        }
        let input = hook_input(&transcript, "Stop", Some("from nobody")).to_string();
        watch.run(as_nobody(&home.command(&["capture-turn"]), &hob), &input);
        let call = |id: u32, method: &str, parameters: serde_json::Value| {
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}).to_string()
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        let asked =
            json!({"name": "memory_recall", "arguments": {"cue": "needle", "project": "*"}});
        let mut bridge = as_nobody(&home.command(&["mcp"]), &hob);
        bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = bridge.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        let lines = [call(1, "initialize", hello), told, call(2, "tools/call", asked)];
        stdin.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("\"id\":2") {
            let read = std::io::BufRead::read_line(&mut reader, &mut said).unwrap();
            assert_ne!(read, 0, "the bridge ended: {said}");
        }
        drop(stdin);
        child.wait().unwrap();
        assert!(!said.contains("haystack") && said.contains("hob serve"), "{said}");
        for name in ["hob.sock", "memory.db", "key", "key.pub", "deferred-captures"] {
            let mut look = Command::new("setpriv");
            look.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat"]);
            let done = finish(
                {
                    look.arg(home.hob_home().join(name));
                    look
                },
                "",
            );
            assert_ne!(done.code, Some(0), "{done:?}");
            assert_eq!(done.stdout, "");
        }
        if with_server {
            wait_drained(&home);
        }
    }
    assert_stored(&home, &[&transcript]);
    server.kill();
}

/// Even where the socket lies in a folder of all, only its owner is answered: not even root.
#[test]
fn socket_answers_only_its_owner() {
    let home = TestHome::new();
    let Some(hob) = open_house(&home) else { return };
    let folder = home.user_home().join("open");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let of_nobody = folder.join("home");
    let socket = folder.join("hob.sock");
    let mut serving = as_nobody(&home.command(&["serve", "--no-http"]), &hob);
    serving.env("HOB_HOME", &of_nobody).env("HOB_SOCKET", &socket);
    let mut child = serving.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 17];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"hob listening on ");
    let mode = fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // Root may connect to any socket; Hob closes without a word.
    let mut stream = UnixStream::connect(&socket).unwrap();
    let call = br#"{"call":"hello","protocol":1}"#;
    let _ = stream.write_all(&(call.len() as u32).to_be_bytes());
    let _ = stream.write_all(call);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    assert_eq!(heard, b"");
    let asked = as_nobody(&home.command(&["status"]), &hob);
    let mut asked = asked;
    asked.env("HOB_HOME", &of_nobody).env("HOB_SOCKET", &socket);
    assert_eq!(finish(asked, "").code, Some(0), "its owner is answered");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn every_file_is_private() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut transcript = Transcript::new(&home, "modes", Shape::Claude);
    // With any umask: 0 here. Every kind of capture leaves files.
    let open = |arguments: &[&str]| {
        let inner = home.command(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(inner.get_program());
        command.args(inner.get_args()).env_clear();
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    };
    transcript.talk(2);
    watch.run(open(&["capture-transcript", "--no-spawn", transcript.path()]), "");
    watch.run(open(&["capture-transcript", transcript.path()]), "");
    let input = hook_input(&transcript, "Stop", Some("Done.")).to_string();
    watch.run(open(&["capture-turn"]), &input);
    let check = || {
        for path in files_below(&home.hob_home()) {
            let mode = |path: &Path| {
                // A drained file may be gone by now.
                fs::symlink_metadata(path)
                    .map(|metadata| metadata.permissions().mode() & 0o777)
                    .ok()
            };
            let allowed = [None, Some(0o600)];
            assert!(allowed.contains(&mode(&path)), "{}: {:?}", path.display(), mode(&path));
            assert_eq!(mode(path.parent().unwrap()), Some(0o700), "{}", path.display());
        }
    };
    check();
    let server = home.serve_with(|command| *command = open(&["serve", "--no-http"]));
    check();
    wait_drained(&home);
    wait_until("it is still answering", || home.run(&["status"]).status.success().then_some(()));
    check();
    assert!(server.stop().success());
    check();
}
