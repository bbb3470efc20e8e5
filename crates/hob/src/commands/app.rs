//! `hob app create|list|revoke`. The commands open the store themselves, with or without a running
//! server.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use hob_domain::memory::Principal;
use hob_domain::session::DeleteFilter;
use hob_domain::{App, AppName, LedgerStore, StoreError, Timestamp};
use hob_files::Trash;
use serde_json::json;

use super::confirm::{OwnersAct, refuse_agents};
use super::{Context, Exit};
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;
use crate::{keys, ledger, memory};

/// How long to wait for another process that writes into the memory.
const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Create, list and revoke apps, the callers of the HTTP API
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: AppAction,
}

#[derive(Subcommand)]
enum AppAction {
    /// Create an app and print its token; Hob stores only a hash and cannot show the token again
    Create {
        /// Name of the app: 1 to 64 characters of A-Z a-z 0-9 . _ -
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
    /// Revoke an app's token and permanently delete the app and all its sessions, files and memory
    Revoke {
        /// Name of the app
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Print {"app":…,"revoked":true}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let home = &context.settings.home;
    refuse_agents(context, "hob app")?;
    if let AppAction::Revoke { name, yes, .. } = &args.action {
        let question = format!("Delete the app {name} with all its sessions, files and memory?");
        let act = OwnersAct { command: "hob app revoke", question: &question, yes: *yes };
        if !act.is_confirmed(context)? {
            return Ok(Exit::Failed);
        }
    }
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
    action: &AppAction,
) -> anyhow::Result<Exit> {
    match action {
        AppAction::Create { name, json } => create(store, name, *json).await,
        AppAction::List { json } => list(store, *json).await,
        AppAction::Revoke { name, json, .. } => revoke(store, settings, name, *json).await,
    }
}

async fn create(store: &dyn LedgerStore, name: &str, json: bool) -> anyhow::Result<Exit> {
    let app = App { name: AppName::new(name)?, created_at: Timestamp::now() };
    let token = keys::new_token()?;
    match store.create_app(&app, token.hash()).await {
        Ok(()) => {}
        Err(error @ StoreError::Exists(_)) => {
            let name = &app.name;
            errln!("hob: {error}; choose another name, or delete it with `hob app revoke {name}`");
            return Ok(Exit::Failed);
        }
        Err(error) => return Err(error.into()),
    }
    if json {
        printer::out_json(&json!({"app": app.name, "token": token.expose()}));
    } else {
        outln!("{}", token.expose());
    }
    Ok(Exit::Done)
}

async fn list(store: &dyn LedgerStore, json: bool) -> anyhow::Result<Exit> {
    let apps = store.list_apps().await?;
    if json {
        let apps: Vec<_> = apps
            .iter()
            .map(|app| json!({"app": app.name, "created_at": app.created_at.to_string()}))
            .collect();
        printer::out_json(&json!({"apps": apps}));
    } else {
        for app in apps {
            outln!("{}\t{}", app.name, app.created_at);
        }
    }
    Ok(Exit::Done)
}

async fn revoke(
    store: &dyn LedgerStore,
    settings: &Resolved,
    name: &str,
    json: bool,
) -> anyhow::Result<Exit> {
    let name = AppName::new(name)?;
    if !store.list_apps().await?.iter().any(|app| app.name == name) {
        errln!("hob: no app has the name {name}; `hob app list` shows all");
        return Ok(Exit::Failed);
    }
    store.append_audit(Timestamp::now(), "revoke", name.as_str(), &json!({})).await?;
    delete_data(store, settings, &name).await?;
    if json {
        printer::out_json(&json!({"app": name, "revoked": true}));
    } else {
        outln!("revoked {name}");
    }
    Ok(Exit::Done)
}

/// Deletes an app with its sessions, files and memory. The app itself goes last, so that an
/// interrupted run can be repeated. A running server ends the agents of the app when it notices
/// that their sessions are gone.
async fn delete_data(
    store: &dyn LedgerStore,
    settings: &Resolved,
    name: &AppName,
) -> anyhow::Result<()> {
    let home = &settings.home;
    let trash = Trash::open(&home.trash())?;
    let sessions = DeleteFilter::App(name.clone());
    for id in store.delete_sessions(&sessions).await? {
        trash.remove(&home.workspaces().join(id.as_str()))?;
    }
    let folders = [
        home.files().join(name.as_str()),
        home.claude().join("apps").join(name.as_str()),
        home.agents().join(name.as_str()),
        hob_sessions::conversation_folder(&home.workspaces(), name),
    ];
    for folder in folders {
        trash.remove(&folder)?;
    }
    // The next app of this name is another app, and must not find the memory of this one.
    let memory = memory::open(settings, STORE_BUSY_TIMEOUT).await?;
    memory.engine.forget_principal(&Principal::App(name.as_str().to_owned())).await?;
    store.remove_app(name).await?;
    // A session that was created since the first deletion.
    store.delete_sessions(&sessions).await?;
    Ok(())
}
