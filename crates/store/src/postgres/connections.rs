//! Pooled connections, encrypted if required. Statements run in a scope of rows, and are retried only where a retry can
//! do no harm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use hob_domain::StoreError;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::error::ConnectError;
use super::row_scope::RowScope;
use super::tls;
use super::url::StoreUrl;

/// The maximum number of connections; further statements wait. A server runs no more at once than it has cores, and every
/// connection is a process there.
const MAX_CONNECTIONS: usize = 16;
/// The connections of the memory, and with that its statements that run at once.
pub(crate) const MAX_MEMORY_CONNECTIONS: usize = 8;
/// The time a call waits for a free connection or an unreachable server. A restart and most fail-overs take less.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which the server cancels a statement, and the time after which the client stops waiting for it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout for deleting many rows at once.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of attempts after conflicts with other transactions.
const MAX_ATTEMPTS: u32 = 6;

/// The maximum pause between two statements of a transaction. It is longer only if a machine sleeps or is cut off; then
/// other nodes wait for the sessions that the transaction has locked, whose leases they may need.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Returns the settings of every connection. Waiting for a lock counts towards the statement timeout; an abandoned
/// transaction is ended.
pub(crate) fn connection_settings() -> String {
    let (limit, idle) = (STATEMENT_TIMEOUT.as_millis(), IDLE_TIMEOUT.as_millis());
    format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
         SET idle_in_transaction_session_timeout = {idle}; \
         SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'; SET jit = off"
    )
}

pub(crate) type Client = Arc<Object>;
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Whether a statement may be retried after the connection was lost during it, when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// The statement reads, or has the same effect and answer when it runs twice.
    Harmless,
    /// The statement could take effect twice.
    Never,
}

/// Whether the server may reuse the plan of a statement. A plan made while a table was small is kept for long, and may
/// scan the whole table once it has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlanCache {
    Automatic,
    Never,
}

/// The limits of a connection pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    /// The time to wait for a free connection or an unreachable server.
    pub(crate) acquire_timeout: Duration,
    /// The time to wait for an answer.
    pub(crate) answer_timeout: Duration,
    pub(crate) plan_cache: PlanCache,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: MAX_CONNECTIONS,
            acquire_timeout: ACQUIRE_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            plan_cache: PlanCache::Automatic,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool,
    limits: Limits,
}

impl Connections {
    /// Makes a pool without connecting yet.
    pub(crate) fn new(url: &StoreUrl, limits: Limits) -> Result<Connections, ConnectError> {
        let tls = tls::connector(&url.tls)?;
        let mut config = url.config.clone();
        let connect = config.get_connect_timeout().copied().unwrap_or(limits.acquire_timeout);
        config.connect_timeout(connect.min(limits.acquire_timeout));
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, tls, recycling);
        let mut settings = connection_settings();
        if limits.plan_cache == PlanCache::Never {
            settings.push_str("; SET plan_cache_mode = force_custom_plan");
        }
        let begin = Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(
                async move { client.batch_execute(&settings).await.map_err(HookError::Backend) },
            )
        });
        let pool = Pool::builder(manager)
            .max_size(limits.max_connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limits.acquire_timeout))
            .create_timeout(Some(limits.acquire_timeout))
            .recycle_timeout(Some(limits.acquire_timeout))
            .post_create(begin)
            .build()
            .map_err(|error| ConnectError::Failed {
                url: url.to_string(),
                error: error.to_string(),
            })?;
        Ok(Connections { pool, limits })
    }

    /// Returns a connection without a scope: its statements see no rows until they set one.
    pub(crate) async fn one(&self) -> Result<Object, Trouble> {
        self.pool.get().await.map_err(Trouble::of_pool)
    }

    /// Returns the connections for transactions with this scope.
    pub(crate) fn within<'a>(&'a self, scope: RowScope<'a>) -> Scoped<'a> {
        Scoped { connections: self, scope }
    }

    /// Runs work on a connection, and retries it if it certainly had no effect: it conflicted with another transaction, or
    /// the connection was lost before the statement or the commit was sent. If the connection is lost later, the outcome
    /// is unknown; then [`Again`] decides.
    async fn run<T, F>(
        &self,
        again: Again,
        limit: Duration,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut attempt = 0;
        let mut lost = false;
        loop {
            let loan = Loan::new(self.wait_for_connection().await?);
            let outcome = tokio::time::timeout(limit, work(loan.client())).await;
            let Ok(outcome) = outcome else {
                let text = "the database does not answer; the outcome is unknown";
                return Err(StoreError::Unavailable(text.to_owned()));
            };
            loan.finish();
            let (trouble, undone) = match outcome {
                Ok(value) => return Ok(value),
                Err(fault) => (Trouble::of(&fault.error), fault.undone),
            };
            attempt += 1;
            match trouble.kind {
                TroubleKind::Conflict if attempt < MAX_ATTEMPTS => pause(attempt).await,
                TroubleKind::Refused if attempt < MAX_ATTEMPTS => pause(attempt).await,
                TroubleKind::Lost if (undone || again == Again::Harmless) && !lost => lost = true,
                _ => return Err(trouble.error()),
            }
        }
    }

    /// Returns a connection, waiting for the server if necessary.
    async fn wait_for_connection(&self) -> Result<Object, StoreError> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            match self.one().await {
                Ok(client) => return Ok(client),
                Err(trouble)
                    if trouble.may_pass() && began.elapsed() < self.limits.acquire_timeout =>
                {
                    attempt += 1;
                    pause(attempt).await;
                }
                Err(trouble) => return Err(trouble.error()),
            }
        }
    }
}

/// Connections whose transactions see and change the rows of one scope.
#[derive(Clone, Copy)]
pub(crate) struct Scoped<'a> {
    connections: &'a Connections,
    scope: RowScope<'a>,
}

impl Scoped<'_> {
    /// Runs one statement as a transaction of its own, in one round trip.
    pub(crate) async fn query(
        self,
        again: Again,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let begin = &self.begin("BEGIN");
        let limit = self.connections.limits.answer_timeout;
        let work = |client: Client| async move {
            let statement = client.prepare_cached(sql).await.map_err(Fault::undone)?;
            // All three are sent at once and in this order. After a failed statement, `COMMIT` rolls back.
            let (begun, done, ended) = tokio::join!(
                biased;
                client.batch_execute(begin),
                client.query(&statement, values),
                client.batch_execute("COMMIT")
            );
            let rows = begun.and(done)?;
            ended?;
            Ok::<_, Fault>(rows)
        };
        self.connections.run(again, limit, work).await
    }

    /// Runs one statement that returns at most one row, as a transaction of its own.
    pub(crate) async fn query_one(
        self,
        again: Again,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(again, sql, values).await?.into_iter().next())
    }

    /// Runs several statements in one transaction. `BEGIN` is sent along with the first of them.
    pub(crate) async fn transaction<T, F>(self, work: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let limit = self.connections.limits.answer_timeout;
        self.whole(Again::Never, &self.begin("BEGIN"), limit, work).await
    }

    /// Runs several reads on one snapshot of the database.
    pub(crate) async fn snapshot<T, F>(self, work: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let limit = self.connections.limits.answer_timeout;
        self.whole(Again::Harmless, &begin, limit, work).await
    }

    /// Runs several statements that may take long in one transaction.
    pub(crate) async fn long_transaction<T, F>(
        self,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = format!("BEGIN; SET LOCAL statement_timeout = {}", LONG_TIMEOUT.as_millis());
        self.whole(Again::Never, &self.begin(&begin), LONG_TIMEOUT, work).await
    }

    /// Returns the statements that begin a transaction with this scope.
    fn begin(self, begin: &str) -> String {
        format!("{begin}; {}", self.scope.for_transaction())
    }

    async fn whole<T, F>(
        self,
        again: Again,
        begin: &str,
        limit: Duration,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let work = |client: Client| {
            let work = work(client.clone());
            async move {
                // `BEGIN` is sent first, so the following statements are inside the transaction.
                let (begun, done) = tokio::join!(biased; client.batch_execute(begin), work);
                match begun.and(done) {
                    Ok(value) => Ok(client.batch_execute("COMMIT").await.map(|()| value)?),
                    Err(error) => {
                        // If this fails, the connection is gone, and with it the transaction.
                        let _ = client.batch_execute("ROLLBACK").await;
                        Err(Fault::undone(error))
                    }
                }
            }
        };
        self.connections.run(again, limit, work).await
    }
}

/// An error during work, and whether the work certainly had no effect.
struct Fault {
    error: Error,
    undone: bool,
}

impl Fault {
    fn undone(error: Error) -> Fault {
        Fault { error, undone: true }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault { error, undone: false }
    }
}

/// Sleeps longer with every attempt, with jitter so that two conflicting callers do not meet again.
async fn pause(attempt: u32) {
    let most = 10_u64 << attempt.min(6);
    let mut byte = [0; 2];
    let _ = getrandom::fill(&mut byte);
    let part = u64::from(u16::from_le_bytes(byte)) * most / u64::from(u16::MAX);
    tokio::time::sleep(Duration::from_millis(most / 2 + part / 2)).await;
}

/// A connection on loan from the pool. A connection whose work was abandoned, because the caller went away or timed out,
/// is closed and not reused: its statement might still be running.
struct Loan {
    client: Option<Client>,
}

impl Loan {
    fn new(client: Object) -> Loan {
        Loan { client: Some(Arc::new(client)) }
    }

    fn client(&self) -> Client {
        Arc::clone(self.client.as_ref().expect("the client is there until the loan is finished"))
    }

    /// Returns the connection to the pool.
    fn finish(mut self) {
        self.client = None;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().and_then(Arc::into_inner) {
            drop(Object::take(client));
        }
    }
}

/// A database error reduced to what callers need. It contains nothing of the statement.
pub(crate) struct Trouble {
    kind: TroubleKind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TroubleKind {
    /// The transaction was rolled back because of a conflict with another one.
    Conflict,
    /// The server accepts no statements now, and has not accepted this one.
    Refused,
    /// The connection was lost.
    Lost,
    /// The statement cannot run now: no disk space, timeout.
    Unavailable,
    Failed,
}

impl Trouble {
    pub(crate) fn of(error: &Error) -> Trouble {
        let Some(told) = error.as_db_error() else {
            let text = match std::error::Error::source(error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            };
            let lost = error.is_closed() || is_io(error);
            return Trouble {
                kind: if lost { TroubleKind::Lost } else { TroubleKind::Failed },
                text,
            };
        };
        let code = told.code();
        let kind = match code.code() {
            "40001" | "40P01" => TroubleKind::Conflict,
            // After a fail-over the remaining server may still be read-only.
            "25006" | "57P03" => TroubleKind::Refused,
            "57P01" | "57P02" | "57P05" | "25P03" => TroubleKind::Lost,
            _ if code == &SqlState::LOCK_NOT_AVAILABLE || code == &SqlState::QUERY_CANCELED => {
                TroubleKind::Unavailable
            }
            other if other.starts_with("08") => TroubleKind::Lost,
            other if other.starts_with("53") || other.starts_with("58") => TroubleKind::Unavailable,
            _ => TroubleKind::Failed,
        };
        Trouble { kind, text: format!("{} ({})", told.message(), code.code()) }
    }

    fn of_pool(error: PoolError) -> Trouble {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                Trouble::of(&error)
            }
            PoolError::Timeout(_) => {
                let text = "no connection was free in time".to_owned();
                Trouble { kind: TroubleKind::Unavailable, text }
            }
            error => Trouble { kind: TroubleKind::Failed, text: error.to_string() },
        }
    }

    /// Returns whether a retry may succeed once a server has started or another has taken over.
    fn may_pass(&self) -> bool {
        matches!(self.kind, TroubleKind::Lost | TroubleKind::Refused)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn error(self) -> StoreError {
        match self.kind {
            TroubleKind::Failed => StoreError::Failed(self.text),
            _ => StoreError::Unavailable(self.text),
        }
    }
}

/// Returns whether the error comes from the network.
fn is_io(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}
