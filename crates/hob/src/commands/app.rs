//! `hob app create|list|revoke`: works on the store itself, with or without a running server.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use hob_domain::memory::Principal;
use hob_domain::{App, AppName, LedgerStore, StoreError, Timestamp};
use hob_sessions::FileRoom;
use serde_json::json;

use super::{Context, Exit};
use crate::settings::Resolved;
use crate::{keys, ledger, memory};

/// Make, list and revoke apps: who may call hob over HTTP
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make an app and print its token; it is shown this once, only its hash is kept
    Create {
        /// 1 to 64 characters of A-Z a-z 0-9 . _ -
        name: String,
        /// Print {"app":…,"token":…}
        #[arg(long)]
        json: bool,
    },
    /// List all apps
    List {
        /// Print {"apps":[…]}
        #[arg(long)]
        json: bool,
    },
    /// Remove an app, its sessions and its files; its token is worthless at once
    Revoke {
        name: String,
        /// Print {"app":…,"revoked":true}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let home = &context.settings.home;
    home.prepare()?;
    let _shared = home.share_store()?;
    let key = keys::data_key(home, context.settings.passphrase.as_deref())?;
    memory::runtime()?.block_on(async {
        let store = ledger::open(&context.settings, &key).await?.ledger;
        act(&*store, &context.settings, &args.action).await
    })
}

async fn act(
    store: &dyn LedgerStore,
    settings: &Resolved,
    action: &Action,
) -> anyhow::Result<Exit> {
    match action {
        Action::Create { name, json } => {
            let name = AppName::new(name.as_str())?;
            let token = keys::new_token()?;
            let app = App { name, created_at: Timestamp::now() };
            match store.create_app(&app, token.hash()).await {
                Ok(()) => {}
                Err(error @ StoreError::Exists(_)) => {
                    eprintln!("hob: {error}; `hob app revoke {}` removes it", app.name);
                    return Ok(Exit::Failed);
                }
                Err(error) => return Err(error.into()),
            }
            if *json {
                println!("{}", json!({"app": app.name, "token": token.expose()}));
            } else {
                println!("{}", token.expose());
            }
            Ok(Exit::Done)
        }
        Action::List { json } => {
            let apps = store.list_apps().await?;
            if *json {
                let apps: Vec<_> = apps
                    .iter()
                    .map(|app| json!({"app": app.name, "created_at": app.created_at.to_string()}))
                    .collect();
                println!("{}", json!({"apps": apps}));
            } else {
                for app in apps {
                    println!("{}\t{}", app.name, app.created_at);
                }
            }
            Ok(Exit::Done)
        }
        Action::Revoke { name, json } => {
            let name = AppName::new(name.as_str())?;
            if !store.list_apps().await?.iter().any(|app| app.name == name) {
                eprintln!("hob: there is no app named {name}");
                return Ok(Exit::Failed);
            }
            // The name goes last, so that what was broken off can be repeated. A server that runs ends
            // their agents when it sees that they are gone.
            for id in store.delete_sessions_of(&name).await? {
                let _ = std::fs::remove_dir_all(settings.home.workspaces().join(id.as_str()));
            }
            FileRoom::remove_app(&settings.home.files(), &name)?;
            let own = [
                settings.home.claude().join("apps").join(name.as_str()),
                hob_sessions::conversation_folder(&settings.home.workspaces(), &name),
            ];
            own.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
            // Whoever has this name next is another app.
            let memory = memory::open(settings, Duration::from_secs(5)).await?;
            memory.engine.forget_principal(&Principal::App(name.as_str().to_owned())).await?;
            store.remove_app(&name).await?;
            store.delete_sessions_of(&name).await?;
            if *json {
                println!("{}", json!({"app": name, "revoked": true}));
            } else {
                println!("{name} is revoked");
            }
            Ok(Exit::Done)
        }
    }
}
