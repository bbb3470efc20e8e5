//! `hob app create|list|revoke`. The commands open the store themselves, with or without a running
//! server.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use clap_complete::ArgValueCompleter;
use hob_domain::memory::Principal;
use hob_domain::session::DeleteFilter;
use hob_domain::{App, AppFilter, AppName, LedgerStore, StoreError, Timestamp};
use hob_files::Trash;
use hob_gateway::client::Method;
use serde_json::{Value, json};

use super::candidates;
use super::confirm::{OwnersAct, refuse_agents};
use super::{Context, Exit};
use crate::home::Home;
use crate::migration_guard::Opener;
use crate::owner_client::{self, NotRunning};
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;
use crate::view::View;
use crate::{keys, ledger, memory};

/// How long to wait for another process that writes into the memory.
const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Manage apps (clients of the HTTP API): create, list, revoke
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
    /// Revoke an app's token and permanently delete the app with its sessions, its files and the memory of its sessions; your
    /// own memory is not affected
    Revoke {
        /// Name of the app
        #[arg(add = ArgValueCompleter::new(candidates::apps))]
        name: String,
        /// Skip the confirmation prompt
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
    if let AppAction::Revoke { name, json, .. } = &args.action
        && let Some(exit) = revoke_through_server(&context.settings, name, *json)?
    {
        return Ok(exit);
    }
    let _shared = home.share_store()?;
    let key = keys::data_key(home, context.settings.passphrase.as_deref())?;
    memory::runtime()?.block_on(async {
        let store = ledger::open(&context.settings, &key, Opener::Command).await?.ledger;
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
        Ok(()) => {
            let name = app.name.as_str();
            store.append_audit(Timestamp::now(), "app_create", name, &json!({})).await?;
        }
        Err(error @ StoreError::Exists(_)) => {
            let name = &app.name;
            errln!(
                "hob: {error}; choose another name, or delete the existing app and its data with `hob app revoke {name}`"
            );
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
    let apps = store.apps(AppFilter::All).await?;
    if json {
        let apps: Vec<_> = apps
            .iter()
            .map(|app| json!({"app": app.name, "created_at": app.created_at.to_string()}))
            .collect();
        printer::out_json(&json!({"apps": apps}));
    } else {
        if apps.is_empty() {
            errln!("no apps; `hob app create NAME` creates one");
            return Ok(Exit::Done);
        }
        let view = View::of_stdout();
        let row = |app: &App| vec![app.name.to_string(), view.time(&app.created_at.to_string())];
        let rows: Vec<Vec<String>> = apps.iter().map(row).collect();
        view.print_table(&["APP", "CREATED"], &rows);
    }
    Ok(Exit::Done)
}

/// Lets a running server revoke the app, which ends its agents at once. Returns `None` if no server answers.
fn revoke_through_server(
    settings: &Resolved,
    name: &str,
    json: bool,
) -> anyhow::Result<Option<Exit>> {
    let name = AppName::new(name)?;
    memory::runtime()?.block_on(async {
        let mut client = match owner_client::connect(&settings.socket).await {
            Err(error) if error.is::<NotRunning>() => return Ok(None),
            client => client?,
        };
        let apps = owner_client::request(&mut client, Method::GET, "/admin/apps", None).await?;
        let is_known = |apps: &Vec<Value>| apps.iter().any(|app| app["app"] == name.as_str());
        if !apps["apps"].as_array().is_some_and(is_known) {
            print_unknown(&name);
            return Ok(Some(Exit::Failed));
        }
        let path = format!("/admin/apps/{name}");
        owner_client::request(&mut client, Method::DELETE, &path, None).await?;
        remove_folders(&settings.home, &name)?;
        print_revoked(&name, json);
        Ok(Some(Exit::Done))
    })
}

fn print_unknown(name: &AppName) {
    errln!("hob: no app has the name {name}; `hob app list` shows all");
}

fn print_revoked(name: &AppName, json: bool) {
    if json {
        printer::out_json(&json!({"app": name, "revoked": true}));
    } else {
        outln!("revoked {name}");
    }
}

async fn revoke(
    store: &dyn LedgerStore,
    settings: &Resolved,
    name: &str,
    json: bool,
) -> anyhow::Result<Exit> {
    let name = AppName::new(name)?;
    if !store.apps(AppFilter::All).await?.iter().any(|app| app.name == name) {
        print_unknown(&name);
        return Ok(Exit::Failed);
    }
    store.append_audit(Timestamp::now(), "revoke", name.as_str(), &json!({})).await?;
    delete_data(store, settings, &name).await?;
    print_revoked(&name, json);
    Ok(Exit::Done)
}

/// Removes the folders of an app, except those of its sessions.
fn remove_folders(home: &Home, name: &AppName) -> anyhow::Result<()> {
    let trash = Trash::open(&home.trash())?;
    for folder in [
        home.files().join(name.as_str()),
        home.claude().join("apps").join(name.as_str()),
        home.agents().join(name.as_str()),
        hob_sessions::conversation_folder(&home.workspaces(), name),
    ] {
        trash.remove(&folder)?;
    }
    Ok(())
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
    remove_folders(home, name)?;
    // The next app of this name is another app, and must not find the memory of this one.
    let memory = memory::open(settings, STORE_BUSY_TIMEOUT).await?;
    memory.engine.forget_principal(&Principal::App(name.as_str().to_owned())).await?;
    store.remove_app(name).await?;
    // A session that was created since the first deletion.
    store.delete_sessions(&sessions).await?;
    Ok(())
}
