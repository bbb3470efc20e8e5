//! Making a session: who may have one, and where it works.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hob_domain::session::{Session, SessionId, SessionSetup, TurnUsage};
use hob_domain::{AppName, Created, OpenLimits, StoreError, Timestamp};
use serde_json::json;

use super::actor::Actor;
use super::error::SessionError;
use super::options::NewSession;
use super::sessions::{Sessions, audit};
use hob_agents::mcp_servers;

impl Sessions {
    /// Makes a session. Its agent is started at once, so that it is warm when the first turn comes.
    pub async fn create(&self, app: &AppName, asked: NewSession) -> Result<Session, SessionError> {
        let (sessions, app) = (self.clone(), app.clone());
        self.carry_through(async move { sessions.make(&app, asked).await }).await
    }

    /// Whether there is room for a run: where all nodes together are bounded, the sessions of all count.
    pub async fn check_room(&self) -> Result<(), SessionError> {
        let Some(cluster) = &self.inner.cluster else { return Ok(()) };
        let most = cluster.options.max_live;
        if most == 0 {
            return Ok(());
        }
        let live = cluster.options.store.open_count(None).await?;
        if live < most { Ok(()) } else { Err(SessionError::PoolFull { live }) }
    }

    async fn make(&self, app: &AppName, asked: NewSession) -> Result<Session, SessionError> {
        let options = &self.inner.options;
        if options.stopping.is_cancelled() {
            return Err(SessionError::Stopping);
        }
        let servers = mcp_servers::parse(&asked.mcp_servers).map_err(SessionError::Invalid)?;
        let id = new_id()?;
        let cwd = match &asked.cwd {
            // The owner may work anywhere.
            Some(cwd) if app.is_owner() => {
                caller_folder(cwd, &["/".into()], &options.sandbox.home)?
            }
            Some(cwd) => caller_folder(cwd, &options.roots, &options.sandbox.home)?,
            None => options.workspaces.join(id.as_str()),
        };
        let most = options.limits.app_sessions;
        // Counting and adding are one step where it matters.
        let _one = match most {
            0 => None,
            _ => Some(self.inner.creating.lock().await),
        };
        let has = match &self.inner.cluster {
            _ if most == 0 => 0,
            Some(cluster) => cluster.options.store.open_count(Some(app)).await?,
            None => self.open().values().filter(|entry| entry.app == *app).count(),
        };
        let limited = || SessionError::Limited {
            code: "app_sessions",
            message: format!("the app has {} open sessions (limits.app_sessions)", has.max(most)),
            retry_after: Duration::from_secs(1),
        };
        if most > 0 && has >= most {
            return Err(limited());
        }
        let permit = options.live.acquire().await;
        let permit = permit.ok_or(SessionError::PoolFull { live: options.live.in_use() })?;
        let own = asked.cwd.is_none();
        let cwd = if own { own_folder(&cwd)? } else { cwd };
        let session = Session {
            id,
            app: app.clone(),
            setup: SessionSetup {
                agent: asked.agent,
                meta: asked.meta,
                cwd: cwd.display().to_string(),
                model: asked.model,
                system: asked.system,
                permissions: asked.permissions,
                mcp_servers: json!(servers),
            },
            // As the ledger keeps it.
            created_at: now_to_the_microsecond(),
            closed_at: None,
            turn_count: 0,
            last_turn_at: None,
            busy: false,
            agent_session: None,
            usage: TurnUsage::default(),
            last_event: 1,
        };
        let body = json!({"agent": session.setup.agent.as_str(), "meta": session.setup.meta,
            "permissions": session.setup.permissions});
        let event = audit("create", None, body);
        let lease = match &self.inner.cluster {
            // Others may have made some since they were counted.
            Some(cluster) if most > 0 || cluster.options.max_live > 0 => {
                let (store, all) = (&cluster.options.store, cluster.options.max_live);
                let limits = OpenLimits { app: most, all };
                let made = store.create_within(&session, event, &options.node, limits).await;
                if !matches!(made, Ok(Created::Made(_))) && own {
                    self.remove_workspace(&session.id);
                }
                match made? {
                    Created::Made(lease) => lease,
                    Created::AppFull(_) => return Err(limited()),
                    Created::Full(live) => return Err(SessionError::PoolFull { live }),
                }
            }
            _ => self.store().create_session(&session, event, &options.node).await?,
        };
        let (entry, answered) = self.enter(&session, lease, permit, Vec::new());
        self.start_actor(Actor::of(&self.inner, entry, answered).warm());
        tracing::info!(app = %app, session = %session.id, agent = %session.setup.agent, "a session was made");
        Ok(session)
    }
}

fn now_to_the_microsecond() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn new_id() -> Result<SessionId, SessionError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("no random numbers: {error}")))?;
    Ok(SessionId::from_random(bytes))
}

/// A folder a caller asked for: it must exist, and really lie in one of the roots and not in Hob's home.
fn caller_folder(cwd: &str, roots: &[PathBuf], home: &Path) -> Result<PathBuf, SessionError> {
    let wrong = |text: String| SessionError::Folder(text);
    if !Path::new(cwd).is_absolute() {
        return Err(wrong(format!("{cwd:?} is not an absolute path")));
    }
    // One answer for what is outside and what does not exist: callers learn nothing about the rest.
    let outside = || wrong(format!("{cwd:?} is no folder inside of sessions.roots"));
    let real = Path::new(cwd).canonicalize().map_err(|_| outside())?;
    let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    let in_home = home.canonicalize().is_ok_and(|home| real.starts_with(home));
    if real.is_dir() && !in_home && roots.iter().any(inside) { Ok(real) } else { Err(outside()) }
}

fn own_folder(path: &Path) -> Result<PathBuf, SessionError> {
    let made = std::fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| StoreError::Failed(format!("no folder for the session: {error}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_folder_lies_in_a_root() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("project")).unwrap();
        std::fs::create_dir_all(place.path().join("root-not")).unwrap();
        std::os::unix::fs::symlink(place.path(), root.join("out")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let roots = [root.clone()];
        let home = root.join("home");
        std::fs::create_dir_all(home.join("inside")).unwrap();
        let check = |path: PathBuf| caller_folder(path.to_str().unwrap(), &roots, &home);
        assert_eq!(check(root.clone()).unwrap(), root.canonicalize().unwrap());
        assert!(check(root.join("project")).is_ok());
        assert!(check(root.join("project/../project")).is_ok());
        for bad in
            ["out", "out/root-not", "../root-not", "file", "missing", "..", "home", "home/inside"]
        {
            assert!(matches!(check(root.join(bad)), Err(SessionError::Folder(_))), "{bad}");
        }
        assert!(matches!(caller_folder("project", &roots, &home), Err(SessionError::Folder(_))));
        assert!(matches!(caller_folder("/", &[], &home), Err(SessionError::Folder(_))));
    }
}
