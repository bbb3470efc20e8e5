//! The command line: exit codes, output for people and for programs.

use hob_testkit::{TestHome, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn json_of(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn usage_errors_are_2_and_help_is_0() {
    let home = TestHome::new();
    for arguments in [&["nonsense"][..], &["serve", "--nonsense"], &["app"], &["app", "create"]] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    for arguments in
        [&["--help"][..], &["serve", "--help"], &["app", "create", "--help"], &["--version"]]
    {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
    assert!(!home.hob_home().exists(), "asking for help makes nothing");
}

#[test]
fn app_commands_work_with_and_without_a_server() {
    let home = TestHome::new();
    let made = home.run(&["app", "create", "one"]);
    assert!(made.status.success());
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("hob_") && token.len() > 40);
    let server = home.serve();
    let run = json!({"prompt": "hi", "agent": "demo"});
    assert_eq!(server.post("/run", Some(&token), &run).status, 200);
    let second = home.app("two");
    assert_eq!(server.post("/run", Some(&second), &run).status, 200, "known at once");
    let again = home.run(&["app", "create", "two"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("two"));
    assert_eq!(home.run(&["app", "create", "a/b"]).status.code(), Some(1));
    let list = json_of(&home.run(&["app", "list", "--json"]));
    let names: Vec<&Value> =
        list["apps"].as_array().unwrap().iter().map(|app| &app["app"]).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(json_of(&home.run(&["app", "revoke", "two", "--yes", "--json"]))["revoked"], true);
    assert_eq!(server.post("/run", Some(&second), &run).status, 401, "worthless at once");
    assert_eq!(home.run(&["app", "revoke", "two", "--yes"]).status.code(), Some(1));
}

#[test]
fn status_tells_whether_a_server_runs() {
    let home = TestHome::new();
    let down = home.run(&["status", "--json"]);
    assert_eq!((down.status.code(), &json_of(&down)["running"]), (Some(3), &json!(false)));
    let server = home.serve();
    let up = json_of(&home.run(&["status", "--json"]));
    assert_eq!((&up["running"], &up["pid"]), (&json!(true), &json!(server.pid())));
    assert_eq!(up["http"], server.url());
    assert!(home.run(&["status"]).status.success());
    // A server that hangs is not one that does not run.
    server.signal(Signal::SIGSTOP);
    let pid = format!("(pid {})", server.pid());
    for command in ["status", "stop"] {
        let output = home.run(&[command]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains(&pid) && said.contains("does not answer"), "{command}: {said}");
    }
    let hanging = home.run(&["status", "--json"]);
    assert_eq!(
        json_of(&hanging),
        json!({"running": true, "answers": false, "pid": server.pid()}),
        "{hanging:?}"
    );
    server.signal(Signal::SIGCONT);
    wait_until("it answers again", || home.run(&["status"]).status.success().then_some(()));
    assert!(server.stop().success());
}

#[test]
fn doctor_prints_checks_fixes_and_sources() {
    let home = TestHome::new();
    home.configure(
        "[sessions]\nmax_live = 3\ntypo = 1\n[agents.demo]\nwritable = [\"/srv/shared\"]\n",
    );
    let mut command = home.command(&["doctor", "--json"]);
    let output = command
        .env("HOB_LISTEN", "127.0.0.1:1")
        .env("HOB_PASSPHRASE", "a-secret-phrase")
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("a-secret-phrase"));
    let report = json_of(&output);
    let setting = |key: &str| {
        let rows = report["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == key).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(setting("sessions.max_live"), ("3".to_owned(), "config.toml".to_owned()));
    assert_eq!(setting("listen"), ("\"127.0.0.1:1\"".to_owned(), "$HOB_LISTEN".to_owned()));
    assert_eq!(setting("log").1, "default");
    assert_eq!(setting("passphrase").0, "(set)");
    let checks = report["checks"].as_array().unwrap();
    let typo =
        checks.iter().find(|check| check["says"].as_str().unwrap().contains("typo")).unwrap();
    assert_eq!(typo["verdict"], "warning");
    let sandbox = checks.iter().find(|check| check["name"] == "sandbox").unwrap();
    assert!(sandbox["says"].as_str().unwrap().contains("demo can also write to /srv/shared"));
    for check in checks {
        assert!(check["verdict"] == "ok" || check["fix"].is_string(), "{check}");
    }
    // The home that `configure` made is open to others: that is a failure, with its fix.
    let home_check = checks.iter().find(|check| check["name"] == "home").unwrap();
    assert_eq!(home_check["verdict"], "failed");
    assert_eq!(output.status.code(), Some(1));
    assert!(home.run(&["app", "list"]).status.success());
    // The home closes its files to others by now, so that an open file in it is only a warning.
    let report = json_of(&home.run(&["doctor", "--json"]));
    let home_check = report["checks"].as_array().unwrap().iter().find(|c| c["name"] == "home");
    assert_eq!(home_check.unwrap()["verdict"], "warning", "{report}");
    std::fs::remove_file(home.hob_home().join("config.toml")).unwrap();
    assert_eq!(home.run(&["doctor"]).status.code(), Some(0));
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let home = TestHome::new();
    home.configure("[sessions]\nmax_live = \"many\"\n");
    let output = home.run(&["serve"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("sessions.max_live") && error.contains("config.toml"), "{error}");
}

/// Data would go over the network in clear.
#[test]
fn database_on_another_machine_needs_tls() {
    let home = TestHome::new();
    let refused = |url: &str, more: &str| {
        home.configure(&format!("[store]\nurl = \"{url}\"\n{more}"));
        let output = home.run(&["config", "get", "store.url"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), !error.contains("store.url"), "{error}");
        (!output.status.success()).then_some(error)
    };
    for mode in ["disable", "prefer"] {
        let url = format!("postgres://hob@db.example/hob?sslmode={mode}");
        home.configure(&format!("[store]\nurl = \"{url}\"\n"));
        let output = home.run(&["serve"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("store.require_tls"),
            "{output:?}"
        );
        let error = refused(&url, "").unwrap();
        assert!(error.contains("store.require_tls") && error.contains("verify-full"), "{error}");
    }
    assert_eq!(refused("postgres://hob@db.example/hob", ""), None, "TLS is required by default");
    assert_eq!(refused("postgres://hob@127.0.0.1/hob?sslmode=disable", ""), None);
    let accepted = "require_tls = false\n";
    assert_eq!(refused("postgres://hob@db.example/hob?sslmode=disable", accepted), None);
}
