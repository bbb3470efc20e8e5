//! A conversation with Claude Code through the backend: every argument is one user message, and each
//! answer is printed with the origin of its process.
//!
//!     cargo run -p hob-agents --example complete -- "My name is Beaver." "What is my name?"
//!
//! Uses the `claude` on the `PATH` in the current folder: with an API key in the environment, or with the
//! user's own login.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

use futures_util::StreamExt;
use hob_agents::claude::{BackendOptions, ClaudeBackend, ConfigFolder, Event, LaunchSpec, Profile};
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::Marker;
use hob_child::{Children, ChildrenOptions};
use hob_domain::Block;
use hob_files::Trash;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This executable is also the shim that owns the agent's process tree.
    if std::env::args().nth(1).as_deref() == Some(hob_child::shim::ARGUMENT) {
        hob_child::shim::run()
    }
    tokio::runtime::Runtime::new()?.block_on(converse(std::env::args().skip(1)))
}

async fn converse(prompts: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let temporary = std::env::temp_dir().join(format!("hob-example-{}", std::process::id()));
    let children = Children::new(ChildrenOptions {
        shim: std::env::current_exe()?,
        records: temporary.join("run"),
        marker: Marker::new("example", "1"),
        umask: 0o022,
        control_groups: None,
    })?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let config = ConfigFolder::for_environment(&environment, &temporary.join("config"), false)?;
    let mut launch_spec = LaunchSpec::new(vec!["claude".into()], config);
    launch_spec.environment = environment;
    let sandbox = SandboxConfig {
        home: temporary.join("home"),
        backups: None,
        socket: temporary.join("hob.sock"),
        files: temporary.join("uploads"),
        temporary: temporary.join("tmp"),
        private: temporary.join("private"),
        has_view: false,
        has_control_groups: false,
        max_memory_bytes: None,
        max_disk_bytes: None,
        environment: Vec::new(),
    };
    let trash = Trash::open(&temporary.join("trash"))?;
    let runtime = Runtime::new(children, LiveLimit::new(16), sandbox, trash);
    let options = BackendOptions::new(runtime, launch_spec, temporary.join("files"));
    let backend = ClaudeBackend::new(options);
    let profile = Profile::new(std::env::current_dir()?);

    let mut messages = Vec::new();
    for prompt in prompts {
        messages.push(json!({"role": "user", "content": prompt}));
        let mut turn = backend.complete(&profile, &messages);
        let mut reply = String::new();
        while let Some(event) = turn.next().await {
            match event? {
                Event::Assistant { block: Block::Text(text), .. } => reply.push_str(&text),
                Event::Result(result) => {
                    let origin = turn.origin().await.map_or("?", |origin| origin.as_str());
                    println!("[{origin}, {} ms] {reply}", result.duration_ms);
                }
                _ => {}
            }
        }
        messages.push(json!({"role": "assistant", "content": reply}));
    }
    backend.close().await;
    std::fs::remove_dir_all(temporary)?;
    Ok(())
}
