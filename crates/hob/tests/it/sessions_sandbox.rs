//! The sandbox of an app's agent, and its working folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hob_testkit::{TestHome, wait_until, wait_until_ok};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;

impl Api {
    /// Whether a shell command succeeds in the agent.
    fn can(&self, id: &str, command: &str) -> bool {
        let command = format!("if ( {command} ) > /dev/null 2>&1; then echo yes; else echo no; fi");
        match self.shell(id, &command).as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{command}: {other}"),
        }
    }

    /// Returns the answer to a request of the agent.
    fn request(&self, id: &str, method: &str, params: &Value) -> Value {
        let said = self.ask(id, &format!("[[request {method} {params}]]"));
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
    }
}

/// A `cwd` must lie in one of the roots, also after links are resolved.
#[test]
fn cwd_outside_the_roots_is_refused() {
    let home = TestHome::new();
    let user = home.user_home().canonicalize().unwrap();
    let (root, outside) = (user.join("work"), user.join("other"));
    fs::create_dir_all(root.join("project")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(root.join("file"), "").unwrap();
    symlink(&outside, root.join("out")).unwrap();
    symlink(root.join("project"), root.join("in")).unwrap();
    configure(&home, &format!("[sessions]\nroots = [{:?}]\n", root.display().to_string()));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let create = |cwd: &Path| api.post("/sessions", &json!({"agent": "acp", "cwd": cwd}));
    for good in
        [root.clone(), root.join("project"), root.join("in"), root.join("project/../project")]
    {
        let answer = create(&good);
        assert_eq!(answer.status, 200, "{}: {}", good.display(), answer.text);
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        assert_eq!(api.shell(&id, "pwd -P"), good.canonicalize().unwrap().display().to_string());
        assert!(api.can(&id, "echo x > made"), "it may write there");
        assert!(!api.can(&id, &format!("echo x > {}/made", outside.display())));
        assert_eq!(api.close(&id).status, 200);
        assert!(good.join("made").exists(), "and it stays");
        fs::remove_file(good.join("made")).unwrap();
    }
    let sessions = api.get("/sessions").json()["count"].clone();
    for bad in [
        outside.clone(),
        root.join("out"),
        root.join("../other"),
        root.join("missing"),
        root.join("file"),
        "project".into(),
        "/".into(),
        "".into(),
        api.home.hob_home(),
        api.home.hob_home().join("workspaces"),
    ] {
        let answer = create(&bad);
        assert_error(&answer, 400, "bad_folder", "cwd");
    }
    let (missing, foreign) = (create(&root.join("../missing")), create(&root.join("../other")));
    let shape = |answer: hob_testkit::server::Answer| {
        answer.json()["error"].as_str().unwrap().replace("missing", "other")
    };
    assert_eq!(shape(missing), shape(foreign), "the answer does not show what exists outside");
    assert_eq!(api.get("/sessions").json()["count"], sessions);
}

/// A root above Hob's home, such as the user's own folder, does not open it: neither to the agent's
/// processes nor to what Hob does for the agent.
#[test]
fn root_above_the_home_does_not_open_it() {
    let home = TestHome::new();
    let above = home.user_home().canonicalize().unwrap().parent().unwrap().to_owned();
    configure(&home, &format!("[sessions]\nroots = [{:?}]\n", above.display().to_string()));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let other = api.home.app("other");
    let upload = api.server.upload(Some(&other), "x.txt", b"the others words").json();
    let (key, config) = (api.home.hob_home().join("key"), api.home.hob_home().join("config.toml"));
    let secret = fs::read_to_string(&key).unwrap();
    let settings = fs::read_to_string(&config).unwrap();
    let secret =
        serde_json::from_str::<Value>(&secret).unwrap()["key"].as_str().unwrap().to_owned();
    let mut open = Vec::new();
    for cwd in [above, api.home.hob_home(), api.home.hob_home().join("files")] {
        let answer = api.post("/sessions", &json!({"agent": "acp", "cwd": cwd}));
        if answer.status == 400 {
            continue;
        }
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        // It may not start at all; but where it does, it reads and changes nothing of the home.
        let theirs = upload["path"].as_str().unwrap();
        for prompt in [
            format!("[[tool Bash {}]]", json!({"command": format!("cat {}", key.display())})),
            format!("[[tool Bash {}]]", json!({"command": format!("cat {theirs}")})),
            format!("[[request fs/read_text_file {}]]", json!({"path": key})),
            format!("[[request fs/read_text_file {}]]", json!({"path": theirs})),
            format!(
                "[[tool Bash {}]]",
                json!({"command": format!("echo >> {}", config.display())})
            ),
            format!("[[request fs/write_text_file {}]]", json!({"path": config, "content": ""})),
        ] {
            let text = api.turn(&id, &prompt).text;
            if text.contains(&secret) || text.contains("the others words") {
                open.push(format!("{} reads: {prompt}", cwd.display()));
            }
            if fs::read_to_string(&config).unwrap() != settings {
                open.push(format!("{} writes: {prompt}", cwd.display()));
                fs::write(&config, &settings).unwrap();
            }
        }
    }
    assert!(open.is_empty(), "{open:#?}");
}

/// Every session has a private folder of its own.
#[test]
fn workspace_belongs_to_one_session() {
    let api = api("");
    let (first, second) = (api.session(), api.session());
    let folder = api.workspace(&first);
    let home = api.home.hob_home().canonicalize().unwrap();
    assert_eq!(folder, home.join("workspaces").join(&first));
    assert_ne!(folder, api.workspace(&second));
    assert_eq!((mode(&folder), mode(folder.parent().unwrap())), (0o700, 0o700));
    assert_eq!(api.shell(&first, "pwd -P"), folder.display().to_string());
    assert_eq!(api.shell(&first, "ls -A"), "");
    assert_eq!(api.shell(&first, "echo kept > note; cat note"), "kept");
    assert_eq!(api.close(&first).status, 200);
    assert_eq!(fs::read_to_string(folder.join("note")).unwrap(), "kept\n", "until it is deleted");
}

/// Hob's home is closed to an agent, except for its own files.
#[test]
fn sandboxed_agent_cannot_read_hobs_home() {
    let api = api("");
    let other = api.home.app("other");
    let id = api.session();
    let neighbour = api.session();
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let upload = |token: &str| {
        let body = api.server.upload(Some(token), "x.txt", b"contents").json();
        body["path"].as_str().unwrap().to_owned()
    };
    let (own_file, their_file) = (upload(&api.token), upload(&other));
    let hob = api.home.hob_home().canonicalize().unwrap();
    let workspaces = hob.join("workspaces");
    for session in [&neighbour, &theirs] {
        fs::write(workspaces.join(session).join("secret"), "x").unwrap();
    }
    let hob_path = |name: &str| hob.join(name).display().to_string();
    for name in ["key", "key.pub", "admin.token", "hob.db", "memory.db", "config.toml"] {
        assert!(hob.join(name).exists(), "{name}");
        assert!(!api.can(&id, &format!("cat {}", hob_path(name))), "{name}");
        assert!(!api.can(&id, &format!("echo x >> {}", hob_path(name))), "{name}");
    }
    for path in [
        their_file,
        workspaces.join(&neighbour).join("secret").display().to_string(),
        workspaces.join(&theirs).join("secret").display().to_string(),
    ] {
        assert!(Path::new(&path).exists(), "{path}");
        assert!(!api.can(&id, &format!("cat {path}")), "reads {path}");
        assert!(!api.can(&id, &format!("echo x >> {path}")), "writes {path}");
    }
    for folder in [hob.clone(), workspaces, hob.join("files"), hob.join("logs")] {
        let listed = api.shell(&id, &format!("ls {} 2> /dev/null; true", folder.display()));
        for foreign in ["key", "hob.db", theirs.as_str(), neighbour.as_str(), "other", "hob.log"] {
            assert!(!listed.lines().any(|name| name == foreign), "{}: {listed}", folder.display());
        }
        assert!(!api.can(&id, &format!("echo x > {}/made", folder.display())));
    }
    assert!(!api.can(&id, &format!("cp -l {} here", hob_path("key"))), "a second name for it");
    assert!(!api.can(&id, &format!("mv {} here", hob_path("key"))));
    assert!(!api.can(&id, &format!("ln -s {} link && cat link", hob_path("key"))));
    assert!(!api.can(&id, &format!("cat /proc/{}/environ", api.server.pid())), "the server's own");
    assert!(!api.can(&id, &format!("cat /proc/{}/root{}", api.server.pid(), hob_path("key"))));
    assert!(!api.can(&id, &format!("kill -0 {}", api.server.pid())), "nor signals it");
    assert!(api.can(&id, &format!("cat {own_file}")), "its own file");
    assert!(hob.join("key").exists());
}

/// Scheduled backups contain the key. Neither the agent's processes nor what Hob does for the agent reads them.
#[test]
fn sandboxed_agent_cannot_read_backups() {
    let home = TestHome::new();
    let user = home.user_home().canonicalize().unwrap();
    let backups = user.join("backups");
    configure(
        &home,
        &format!(
            "[sessions]\nroots = [{user:?}]\n[backup]\nfolder = {backups:?}\nevery_secs = 3600\n"
        ),
    );
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let file = wait_until("a backup is there", || {
        let names = fs::read_dir(&backups).into_iter().flatten().flatten();
        names.map(|entry| entry.path()).find(|path| path.extension().is_some())
    });
    let later = backups.join("later.txt");
    let id = api.session();
    fs::write(&later, "a later file").unwrap();
    for path in [&file, &later] {
        let path = path.display();
        assert!(!api.can(&id, &format!("cat {path}")), "reads {path}");
        assert!(!api.can(&id, &format!("echo x >> {path}")), "writes {path}");
    }
    let answer = api.post("/sessions", &json!({"agent": "acp", "cwd": user}));
    if answer.status == 200 {
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        let request = format!("[[request fs/read_text_file {}]]", json!({"path": later}));
        let text = api.turn(&id, &request).text;
        assert!(!text.contains("a later file"), "{text}");
    }
}

/// It reads what the user can and writes what it needs.
#[test]
fn sandboxed_agent_writes_only_its_own_folders() {
    let api = api("");
    let id = api.session();
    let user = api.home.user_home();
    fs::write(user.join("notes"), "the users notes").unwrap();
    assert_eq!(api.shell(&id, "cat $HOME/notes"), "the users notes");
    for command in [
        "echo x > $HOME/x",
        "echo x >> $HOME/notes",
        "rm $HOME/notes",
        "mkdir $HOME/folder",
        "mv $HOME/notes here",
        "ln $HOME/notes here && echo x >> here",
        "echo x > /var/hob-test-escape",
    ] {
        assert!(!api.can(&id, command), "{command}");
    }
    for command in [
        "echo x > file && mkdir folder && mv file folder/file && rm -r folder",
        "echo x > \"$TMPDIR/file\" && rm \"$TMPDIR/file\"",
        "f=$(mktemp) && echo x > $f && rm $f",
        "echo x > $HOME/.hob-scripted/file && rm $HOME/.hob-scripted/file",
        "echo x > /dev/null",
    ] {
        assert!(api.can(&id, command), "{command}");
    }
    assert_eq!(fs::read_to_string(user.join("notes")).unwrap(), "the users notes");
    assert!(!user.join("x").exists());
    // Its folder for temporary files may be shown as `/tmp`.
    api.can(&id, "echo x > /tmp/hob-test-escape-x");
    assert!(!Path::new("/tmp/hob-test-escape-x").exists());
}

/// Requests of an agent to Hob are carried out within its sandbox.
#[test]
fn file_requests_of_an_agent_stay_within_its_sandbox() {
    let api = api("");
    let id = api.session();
    let folder = api.workspace(&id);
    let file = folder.join("note.txt");
    let write = json!({"path": file, "content": "line one\nline two\n"});
    let wrote = api.request(&id, "fs/write_text_file", &write);
    assert!(wrote.get("code").is_none(), "{wrote}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "line one\nline two\n");
    let read = api.request(&id, "fs/read_text_file", &json!({"path": file}));
    assert_eq!(read["content"], "line one\nline two\n");
    let part = json!({"path": file, "line": 2, "limit": 1});
    let part = api.request(&id, "fs/read_text_file", &part);
    assert_eq!(part["content"].as_str().unwrap().trim_end(), "line two");
    let key = api.home.hob_home().join("key");
    symlink(&key, folder.join("link")).unwrap();
    symlink(api.home.user_home(), folder.join("up")).unwrap();
    for path in [
        key.clone(),
        folder.join("link"),
        folder.join("../../key"),
        api.home.hob_home().join("admin.token"),
        "note.txt".into(),
    ] {
        let read = api.request(&id, "fs/read_text_file", &json!({"path": path}));
        assert!(read.get("code").is_some(), "{}: {read}", path.display());
    }
    let before = fs::read(&key).unwrap();
    for path in [
        key.clone(),
        folder.join("link"),
        folder.join("up/x"),
        folder.join("../x"),
        api.home.user_home().join("x"),
    ] {
        let write = json!({"path": path, "content": "x"});
        let wrote = api.request(&id, "fs/write_text_file", &write);
        assert!(wrote.get("code").is_some(), "{}: {wrote}", path.display());
    }
    assert_eq!(fs::read(&key).unwrap(), before);
    assert!(!api.home.user_home().join("x").exists());
}

/// So are the commands it lets Hob run.
#[test]
fn terminals_of_an_agent_stay_within_its_sandbox() {
    let api = api("");
    let id = api.session();
    let run = |command: &str| {
        let create = json!({"command": "sh", "args": ["-c", command]});
        let made = api.request(&id, "terminal/create", &create);
        let name = json!({"terminalId": made["terminalId"]});
        assert!(made["terminalId"].is_string(), "{made}");
        let exit = api.request(&id, "terminal/wait_for_exit", &name);
        let output = api.request(&id, "terminal/output", &name);
        api.request(&id, "terminal/release", &name);
        (exit["exitCode"].clone(), output["output"].as_str().unwrap().to_owned())
    };
    let (code, output) = run("pwd -P; echo x > made; exit 3");
    assert_eq!((code, output.trim_end()), (json!(3), api.workspace(&id).to_str().unwrap()));
    assert!(api.workspace(&id).join("made").exists());
    let key = api.home.hob_home().join("key");
    let (code, output) = run(&format!("cat {} > copy || echo shut", key.display()));
    assert!(output.contains("shut"), "{code} {output}");
    assert_eq!(run("echo x > $HOME/x || echo shut").1.lines().last(), Some("shut"));
    let (_, environment) = run("env");
    assert!(!environment.contains("HOB_ADMIN"), "{environment}");
    // A terminal that is never ended goes with its agent.
    let create = json!({"command": "sleep", "args": ["100000"]});
    assert!(api.request(&id, "terminal/create", &create)["terminalId"].is_string());
    assert_eq!(api.close(&id).status, 200);
    api.wait_for_no_process();
}

/// `sandbox = "off"` trusts an agent.
#[test]
fn sandbox_off_confines_nothing() {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("acp", "acp", &["acp"]);
    home.configure(&format!("{agent}sandbox = \"off\"\n"));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let id = api.session();
    assert!(api.can(&id, "echo x > $HOME/x"));
    assert!(api.can(&id, &format!("ls {}", api.home.hob_home().display())));
    assert!(api.home.user_home().join("x").exists());
}

/// An agent gets only the variables that are named in its settings.
#[test]
fn environment_of_an_agent_is_cleaned() {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("acp", "acp", &["acp"]);
    home.configure(&format!("{agent}env = {{ GIVEN = \"yes\" }}\nenv_pass = [\"PASSED_*\"]\n"));
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        command.env("HOB_ADMIN_TOKEN", "secret-admin").env("HOB_PASSPHRASE", "secret-phrase");
        command.env("PASSED_ON", "p").env("OTHER", "o").env("AWS_SECRET_ACCESS_KEY", "secret-key");
    });
    let api = Api::new(Backend::File, server, home, &token);
    let environment = api.shell(&api.session(), "env");
    for there in ["GIVEN=yes", "PASSED_ON=p", "PATH=", "HOME=", "TMPDIR="] {
        assert!(environment.lines().any(|line| line.starts_with(there)), "{there}: {environment}");
    }
    for absent in ["HOB_ADMIN_TOKEN", "HOB_PASSPHRASE", "HOB_HOME", "OTHER=", "AWS_", "secret-"] {
        assert!(!environment.contains(absent), "{absent}: {environment}");
    }
}

/// A run has the sandbox of a session, with every driver.
#[test]
fn runs_have_the_sandbox_of_sessions() {
    let api = api("");
    let key = api.home.hob_home().join("key");
    let notes = api.home.user_home().join("notes");
    fs::write(&notes, "").unwrap();
    for agent in ["acp", "claude"] {
        let command = format!(
            "cat {} > $HOME/.hob-scripted/{agent}; echo x > {}; echo x > own && \
             echo fine > $HOME/.hob-scripted/{agent}-own",
            key.display(),
            notes.display()
        );
        let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
        let answer = api.post("/run", &json!({"prompt": prompt, "agent": agent}));
        assert_eq!(answer.status, 200, "{agent}: {}", answer.text);
        let read = |name: String| fs::read_to_string(api.conversations().join(name)).unwrap();
        assert_eq!(read(agent.to_owned()), "", "{agent} reads the key");
        assert_eq!(read(format!("{agent}-own")), "fine\n", "{agent}");
        assert_eq!(fs::read_to_string(&notes).unwrap(), "", "{agent} writes the user's files");
    }
}

/// Every request is answered, also one for a file that is not there.
#[test]
fn file_request_for_a_missing_file_is_answered() {
    let api = api("");
    let id = api.session();
    let folder = api.workspace(&id);
    let read = format!("[[request fs/read_text_file {}]]", json!({"path": folder.join("none")}));
    let turn = api.start_turn(&id, &read);
    let ended = api.wait_for_turn(&id, turn, "finished");
    assert!(ended["text"].as_str().unwrap().contains("code"), "{ended}");
}

/// Sends many file requests at once; each has to be answered.
fn requests_are_answered(file: &str, answer: &str) {
    let api = api("");
    let id = api.session();
    let folder = api.workspace(&id);
    fs::write(folder.join("f"), "plain").unwrap();
    let path = json!({"path": folder.join(file)});
    let prompt = format!("[[request fs/read_text_file {path}]]").repeat(400);
    for _ in 0..3 {
        let turn = api.start_turn(&id, &prompt);
        wait_until_ok("every request is answered", || {
            let answered = api.get_turn(&id, turn)["events"].as_array().unwrap().len() / 2;
            if api.describe(&id)["state"] == "running" { Err(answered) } else { Ok(()) }
        });
        assert_eq!(api.get_turn(&id, turn)["text"].as_str().unwrap().matches(answer).count(), 400);
    }
}

#[test]
fn every_file_request_of_an_agent_is_answered() {
    requests_are_answered("f", "plain");
}

#[test]
fn every_refused_file_request_of_an_agent_is_answered() {
    requests_are_answered("../../key", "-32602");
}

/// A file that becomes a link between check and use is not followed out of the folder.
#[test]
fn agent_that_swaps_files_for_links_reaches_no_secret() {
    let api = api("");
    let id = api.session();
    let folder = api.workspace(&id);
    let key = api.home.hob_home().join("key");
    let secret = fs::read_to_string(&key).unwrap();
    let secret =
        serde_json::from_str::<Value>(&secret).unwrap()["key"].as_str().unwrap().to_owned();
    let swap = format!(
        "echo plain > plain; cp plain f; (while :; do ln -sf {} f; cp plain t && mv -f t f; done) \
         > /dev/null 2>&1 &",
        key.display()
    );
    api.shell(&id, &swap);
    let read = format!("[[request fs/read_text_file {}]]", json!({"path": folder.join("f")}));
    let prompt = read.repeat(400);
    let mut seen = 0;
    for _ in 0..5 {
        let turn = api.start_turn(&id, &prompt);
        wait_until("every request is answered", || {
            (api.describe(&id)["state"] != "running").then_some(())
        });
        let text = api.get(&format!("/sessions/{id}/turns/{turn}")).text;
        assert!(!text.contains(&secret), "the key was read");
        seen += text.matches("plain").count();
    }
    assert!(seen > 0, "the file was read at all");
}
