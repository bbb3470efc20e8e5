//! Creating a session: who may have one, and where it works.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hob_domain::session::{
    Created, EventKind, NewEvent, Session, SessionId, SessionSetup, TurnUsage,
};
use hob_domain::{AppName, StoreError, Timestamp};
use serde_json::json;

use super::actor::AgentStart;
use super::error::SessionError;
use super::events::audit_event;
use super::handle::OpenSession;
use super::local::LocalSessions;
use super::options::{NewSession, SessionsOptions};
use super::placement::Placement;
use hob_agents::mcp_servers::{self, McpServer};
use hob_files::owned;

/// Creates sessions within the limits.
pub(super) struct SessionCreator {
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
}

impl SessionCreator {
    pub fn new(local: Arc<LocalSessions>, placement: Arc<dyn Placement>) -> SessionCreator {
        SessionCreator { local, placement }
    }

    /// Creates a session and starts its agent, so that it is warm when the first turn comes.
    pub async fn create(
        &self,
        app: &AppName,
        request: NewSession,
    ) -> Result<Session, SessionError> {
        let options = &self.local.context.options;
        if options.runtime.stopping.is_cancelled() {
            return Err(SessionError::Stopping);
        }
        let mut servers =
            mcp_servers::parse(&request.mcp_servers).map_err(SessionError::Invalid)?;
        if !request.client_tools.is_empty() {
            let server = McpServer::of_client(request.client_tools);
            if servers.iter().any(|other| other.name == server.name) {
                let text = format!(
                    "mcp_servers: the name {:?} is reserved for the session's `tools`; choose another",
                    server.name
                );
                return Err(SessionError::Invalid(text));
            }
            servers.push(server);
        }
        let id = new_id()?;
        let chosen = chosen_folder(options, app, request.cwd.as_deref())?;
        let max = options.limits.app_sessions;
        // An app at its limit must not end an idle agent of another app. The ledger counts again
        // when it stores the session.
        if max > 0 {
            let open = self.placement.open_count(app).await?;
            if open >= max {
                return Err(too_many_sessions(open));
            }
        }
        let permit = options.runtime.live.acquire(app.as_str()).await;
        let permit =
            permit.ok_or(SessionError::PoolFull { live: options.runtime.live.in_use() })?;
        let cwd = match &chosen {
            Some(cwd) => cwd.clone(),
            None => make_folder(&options.workspaces.join(id.as_str()))?,
        };
        let setup = SessionSetup {
            agent: request.agent,
            meta: request.meta,
            cwd: cwd.display().to_string(),
            model: request.model,
            system: request.system,
            permissions: request.permissions,
            mcp_servers: json!(servers),
        };
        let session = new_session(id, app, setup);
        let stored = self.placement.create(&session, create_event(&session), max).await;
        if !matches!(stored, Ok(Created::Made(_))) && chosen.is_none() {
            self.local.context.remove_workspace(&session.id);
        }
        let lease = match stored? {
            Created::Made(lease) => lease,
            Created::AppFull(_) => return Err(too_many_sessions(max)),
            Created::Full(live) => return Err(SessionError::PoolFull { live }),
        };
        let open = OpenSession { session: &session, lease, permit, queue: Vec::new() };
        self.local.open(open, AgentStart::Eager);
        let agent = &session.setup.agent;
        tracing::info!(%app, session = %session.id, %agent, "session created");
        Ok(session)
    }
}

fn too_many_sessions(open: usize) -> SessionError {
    SessionError::Limited {
        code: "app_sessions",
        message: format!(
            "the app has {open} open sessions, which is the limit; close one or raise limits.app_sessions"
        ),
        retry_after: Duration::from_secs(1),
    }
}

fn new_session(id: SessionId, app: &AppName, setup: SessionSetup) -> Session {
    Session {
        id,
        app: app.clone(),
        setup,
        created_at: now_in_microseconds(),
        closed_at: None,
        turn_count: 0,
        last_turn_at: None,
        busy: false,
        agent_session: None,
        usage: TurnUsage::default(),
        last_event: 1,
    }
}

fn create_event(session: &Session) -> NewEvent {
    let setup = &session.setup;
    let body = json!({"agent": setup.agent.as_str(), "meta": setup.meta,
        "permissions": setup.permissions});
    audit_event(EventKind::Create, None, body)
}

/// Returns the current time in the ledger's precision.
fn now_in_microseconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn new_id() -> Result<SessionId, SessionError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("cannot get random bytes: {error}")))?;
    Ok(SessionId::from_random(bytes))
}

/// Returns the folder that the caller chose, if any. The owner may choose any folder outside of
/// Hob's home.
fn chosen_folder(
    options: &SessionsOptions,
    app: &AppName,
    cwd: Option<&str>,
) -> Result<Option<PathBuf>, SessionError> {
    let Some(cwd) = cwd else { return Ok(None) };
    let home = &options.runtime.sandbox.home;
    let folder = match app.is_owner() {
        true => check_folder(cwd, &["/".into()], home),
        false => check_folder(cwd, &options.roots, home),
    };
    folder.map(Some)
}

/// Checks a folder that a caller chose: it must exist, and its real path must lie inside of a root
/// and outside of Hob's home.
fn check_folder(cwd: &str, roots: &[PathBuf], home: &Path) -> Result<PathBuf, SessionError> {
    if !Path::new(cwd).is_absolute() {
        return Err(SessionError::Folder(format!("{cwd:?} is not an absolute path")));
    }
    // A missing folder and one outside of the roots get the same answer: callers learn nothing
    // about the rest.
    let outside = || SessionError::Folder(format!("{cwd:?} is not a folder inside sessions.roots"));
    let real = Path::new(cwd).canonicalize().map_err(|_| outside())?;
    let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    let in_home = home.canonicalize().is_ok_and(|home| real.starts_with(home));
    if real.is_dir() && !in_home && roots.iter().any(inside) { Ok(real) } else { Err(outside()) }
}

fn make_folder(path: &Path) -> Result<PathBuf, SessionError> {
    let made = owned::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| {
        StoreError::Failed(format!("cannot make the session's folder: {error}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_folder_must_lie_in_a_root() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("project")).unwrap();
        std::fs::create_dir_all(outside.path().join("root-not")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("out")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let roots = [root.clone()];
        let home = root.join("home");
        std::fs::create_dir_all(home.join("inside")).unwrap();
        let check = |path: PathBuf| check_folder(path.to_str().unwrap(), &roots, &home);
        assert_eq!(check(root.clone()).unwrap(), root.canonicalize().unwrap());
        assert!(check(root.join("project")).is_ok());
        assert!(check(root.join("project/../project")).is_ok());
        for bad in
            ["out", "out/root-not", "../root-not", "file", "missing", "..", "home", "home/inside"]
        {
            assert!(matches!(check(root.join(bad)), Err(SessionError::Folder(_))), "{bad}");
        }
        assert!(matches!(check_folder("project", &roots, &home), Err(SessionError::Folder(_))));
        assert!(matches!(check_folder("/", &[], &home), Err(SessionError::Folder(_))));
    }
}
