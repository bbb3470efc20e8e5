//! Remote commands, notifications and files shared by nodes, and limits over all nodes.

use std::time::Duration;

use async_trait::async_trait;
use hob_domain::session::SessionId;
use hob_domain::{
    AppName, ClusterEvent, ClusterStore, CommandFilter, CommandOutcome, FilePart, Lease,
    LeasedSession, NodeId, RemoteCommand, SessionCommand, StoreError,
};

use super::PostgresLedger;
use super::heartbeat::{self, CHANNEL};
use super::session_rows::{id as session_id, key};
use crate::postgres::connections::{Again, Values};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::put;
use crate::postgres::text_cipher::{TextCipher, TextKind};
use crate::values::{app_name, damaged};

/// The maximum number of sessions per notification, whose payload is limited to 8,000 bytes.
const MAX_NOTIFIED_SESSIONS: usize = 200;
/// The age at which any node removes an abandoned command.
const ABANDONED_AFTER: &str = "interval '10 minutes'";

#[async_trait]
impl ClusterStore for PostgresLedger {
    async fn run_heartbeat(
        &self,
        node: &NodeId,
        every: Duration,
        tell: &(dyn Fn(ClusterEvent) + Send + Sync),
    ) {
        heartbeat::run(&self.url, node, every, tell).await;
    }

    async fn notify(&self, from: &NodeId, sessions: &[SessionId]) -> Result<(), StoreError> {
        // A notification without sessions tells the others that this node has started.
        let greeting = sessions.is_empty().then_some(sessions);
        for some in sessions.chunks(MAX_NOTIFIED_SESSIONS).chain(greeting) {
            let mut payload = from.to_string();
            for id in some {
                payload.push(' ');
                payload.push_str(id.as_str());
            }
            let sql = "SELECT pg_notify($1, $2)";
            let connections = self.connections.within(RowScope::Shared);
            connections.query(Again::Harmless, sql, &[&CHANNEL, &payload]).await?;
        }
        Ok(())
    }

    async fn leased_sessions(&self, node: &NodeId) -> Result<Vec<LeasedSession>, StoreError> {
        let sql = "SELECT h.app, h.session, h.fence,
                 coalesce(array_agg(t.number ORDER BY t.number) FILTER (WHERE t.state = 'queued'), '{}'),
                 coalesce(bool_or(t.state = 'running'), false)
             FROM hob.heads h LEFT JOIN hob.turns t ON t.session = h.session
                 AND t.state IN ('queued', 'running')
             WHERE h.holder = $1 AND (h.closed_at IS NULL OR t.state = 'running') GROUP BY h.session";
        let connections = self.connections.within(RowScope::All);
        let rows = connections.query(Again::Harmless, sql, &[&node.as_str()]).await?;
        let held = |row: &tokio_postgres::Row| {
            let queued: Vec<i64> = row.get(3);
            Ok(LeasedSession {
                lease: Lease {
                    app: app_name(row.get(0))?,
                    session: session_id(row.get(1))?,
                    fence: row.get::<_, i64>(2) as u64,
                },
                queued: queued.into_iter().map(|turn| turn as u32).collect(),
                running: row.get(4),
            })
        };
        rows.iter().map(held).collect()
    }

    async fn enqueue_command(&self, command: &RemoteCommand) -> Result<(), StoreError> {
        let sql = "INSERT INTO hob.commands (id, app, session, body) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO NOTHING";
        let body = self.texts.seal(TextKind::Command, &command.body.to_json());
        let values: Values<'_> =
            &[&command.id, &command.app.as_str(), &key(&command.session), &body];
        self.of_app(&command.app).query(Again::Harmless, sql, values).await.map(drop)
    }

    async fn commands(&self, filter: &CommandFilter) -> Result<Vec<RemoteCommand>, StoreError> {
        let (condition, value) = match filter {
            CommandFilter::Id(id) => ("id = $1", id.as_str()),
            CommandFilter::Pending(node) => {
                let condition = "outcome IS NULL
                     AND enqueued_at > clock_timestamp() - interval '1 minute'
                     AND EXISTS (SELECT 1 FROM hob.heads h
                         WHERE h.session = e.session AND h.app = e.app AND h.holder = $1)";
                (condition, node.as_str())
            }
        };
        let sql = format!(
            "SELECT id, app, session, body, outcome FROM hob.commands e
             WHERE {condition} ORDER BY enqueued_at, id"
        );
        let connections = self.connections.within(RowScope::All);
        let rows = connections.query(Again::Harmless, &sql, &[&value]).await?;
        let command = |row: &tokio_postgres::Row| {
            let text = |stored: String| self.texts.open(TextKind::Command, stored);
            let outcome = row.get::<_, Option<String>>(4).map(text).transpose()?;
            Ok(RemoteCommand {
                id: row.get(0),
                app: app_name(row.get(1))?,
                session: session_id(row.get(2))?,
                body: SessionCommand::from_json(&text(row.get(3))?),
                outcome: outcome.map(|outcome| CommandOutcome::from_json(&outcome)),
            })
        };
        rows.iter().map(command).collect()
    }

    async fn complete_command(
        &self,
        command: &str,
        outcome: &CommandOutcome,
    ) -> Result<(), StoreError> {
        let outcome = self.texts.seal(TextKind::Command, &outcome.to_json());
        let sql = "UPDATE hob.commands SET outcome = $2 WHERE id = $1 AND outcome IS NULL";
        let connections = self.connections.within(RowScope::All);
        connections.query(Again::Harmless, sql, &[&command, &outcome]).await.map(drop)
    }

    async fn remove_command(&self, command: &str) -> Result<(), StoreError> {
        let sql = format!(
            "DELETE FROM hob.commands WHERE id = $1 OR enqueued_at < clock_timestamp() - {ABANDONED_AFTER}"
        );
        let connections = self.connections.within(RowScope::All);
        connections.query(Again::Harmless, &sql, &[&command]).await.map(drop)
    }

    async fn open_count(&self, app: Option<&AppName>) -> Result<usize, StoreError> {
        let sql =
            "SELECT count(*) FROM hob.heads WHERE closed_at IS NULL AND coalesce(app = $1, true)";
        let connections = self.of_app_or_all(app);
        let app = app.map(AppName::as_str);
        let row = connections.query_one(Again::Harmless, sql, &[&app]).await?;
        Ok(row.map_or(0, |row| row.get::<_, i64>(0) as usize))
    }

    async fn pace(&self, app: &AppName, most: usize) -> Result<Result<(), Duration>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.of_app(app)
            .transaction(|client| async move {
                // Turns of one app are counted one after the other: counting and adding are one step.
                let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1751080048))";
                client.query(&client.prepare_cached(lock).await?, &[&app.as_str()]).await?;
                let old = "DELETE FROM hob.pace WHERE app = $1 AND at < clock_timestamp() - interval '1 minute'";
                client.execute(&client.prepare_cached(old).await?, &[&app.as_str()]).await?;
                let add = "INSERT INTO hob.pace (app, at) SELECT $1, clock_timestamp()
                     WHERE (SELECT count(*) FROM hob.pace WHERE app = $1) < $2";
                let add = client.prepare_cached(add).await?;
                if client.execute(&add, &[&app.as_str(), &most]).await? > 0 {
                    return Ok(Ok(()));
                }
                let wait = "SELECT extract(epoch FROM min(at) + interval '1 minute' - clock_timestamp())
                     ::double precision FROM hob.pace WHERE app = $1";
                let wait = client.prepare_cached(wait).await?;
                let left: Option<f64> = client.query_one(&wait, &[&app.as_str()]).await?.get(0);
                let left = left.unwrap_or_default().max(0.0);
                Ok(Err(Duration::try_from_secs_f64(left).unwrap_or_default()))
            })
            .await
    }

    async fn put_file(&self, part: &FilePart) -> Result<(), StoreError> {
        let sql = "INSERT INTO hob.files (app, id, part, last, name, bytes)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
        let number = i32::try_from(part.part).unwrap_or(i32::MAX);
        let name = self.texts.seal(TextKind::Upload, &part.name);
        let sealed = self.texts.seal_bytes(TextKind::Upload, &part.bytes);
        let bytes = sealed.as_ref().unwrap_or(&part.bytes);
        let values: Values<'_> = &[&part.app.as_str(), &part.id, &number, &part.last, &name, bytes];
        self.of_app(&part.app).query(Again::Harmless, sql, values).await.map(drop)
    }

    async fn file(
        &self,
        app: &AppName,
        id: &str,
        part: u32,
    ) -> Result<Option<FilePart>, StoreError> {
        // Only a complete file has parts to read.
        let sql = "SELECT f.name, f.last, f.bytes FROM hob.files f
             WHERE f.app = $1 AND f.id = $2 AND f.part = $3
             AND EXISTS (SELECT 1 FROM hob.files l WHERE l.app = $1 AND l.id = $2 AND l.last)";
        let number = i32::try_from(part).unwrap_or(i32::MAX);
        let values: Values<'_> = &[&app.as_str(), &put(id), &number];
        let row = self.of_app(app).query_one(Again::Harmless, sql, values).await?;
        let Some(row) = row else { return Ok(None) };
        let (stored, mut bytes): (String, Vec<u8>) = (row.get(0), row.get(2));
        // The bytes are encrypted if the name is.
        if TextCipher::is_sealed(&stored) {
            let opened = self.texts.open_bytes(TextKind::Upload, &bytes);
            bytes = opened.ok_or_else(|| damaged("an upload"))?;
        }
        let name = self.texts.open(TextKind::Upload, stored)?;
        Ok(Some(FilePart {
            app: app.clone(),
            id: id.to_owned(),
            name,
            part,
            bytes,
            last: row.get(1),
        }))
    }

    async fn drop_files(&self, age: Duration) -> Result<(), StoreError> {
        let sql = "DELETE FROM hob.files
             WHERE stored_at < clock_timestamp() - make_interval(secs => $1)";
        let connections = self.connections.within(RowScope::All);
        connections.query(Again::Harmless, sql, &[&age.as_secs_f64()]).await.map(drop)
    }
}
