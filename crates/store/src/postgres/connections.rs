//! The connections: pooled, encrypted where that is asked for, tried again where that can do no harm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use hob_domain::StoreError;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::error::ConnectError;
use super::url::{StoreUrl, Tls, Trust};

/// How many statements run at once; what comes on top waits. A server does no more at once than it has cores, and
/// every connection is a process there.
const MOST: usize = 16;
/// How long a call waits for a connection to be free, or for a server that is not there: a restart and most
/// fail-overs take less.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long a statement is given up, by the server and, should that not answer, by us.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for deleting much at once.
const LONG: Duration = Duration::from_secs(600);
/// How often what lost against another transaction is done again.
const ATTEMPTS: u32 = 6;

/// Between two statements of a transaction nobody takes longer, unless its machine sleeps or is cut off; and then others wait
/// for the sessions that it has locked, which they may have to take.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// What every connection begins with. Locks are waited for no longer than other things; a transaction of somebody
/// who has gone away ends.
pub(crate) fn beginning() -> String {
    let (limit, idle) = (STATEMENT_TIMEOUT.as_millis(), IDLE_TIMEOUT.as_millis());
    format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
         SET idle_in_transaction_session_timeout = {idle}; \
         SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'; SET jit = off"
    )
}

pub(crate) type Client = Arc<Object>;
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Whether something may be done again after the connection was lost in the middle of it, when nobody knows how far
/// it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It reads, or doing it twice is the same as once, and the answer too.
    Harmless,
    /// It would be done twice.
    Never,
}

/// How many connections there are at most, and how long is waited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) most: usize,
    /// For a connection to be free, or for a server that is not there.
    pub(crate) patience: Duration,
    /// For an answer.
    pub(crate) answer: Duration,
    /// Whether statements are planned every time. A plan that was made while a table was small is kept for long, and may
    /// read all of it when it has grown.
    pub(crate) plans_anew: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { most: MOST, patience: PATIENCE, answer: ANSWER_TIMEOUT, plans_anew: false }
    }
}

#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool,
    limits: Limits,
}

impl Connections {
    /// Makes no connection yet.
    pub(crate) fn new(url: &StoreUrl, limits: Limits) -> Result<Connections, ConnectError> {
        let tls = tls(&url.tls)
            .map_err(|error| ConnectError::Certificates { error: error.to_string() })?;
        let mut config = url.config.clone();
        let connect = config.get_connect_timeout().copied().unwrap_or(limits.patience);
        config.connect_timeout(connect.min(limits.patience));
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, tls, recycling);
        let beginning = match limits.plans_anew {
            true => format!("{}; SET plan_cache_mode = force_custom_plan", beginning()),
            false => beginning(),
        };
        let begin = Hook::async_fn(move |client, _| {
            let beginning = beginning.clone();
            Box::pin(
                async move { client.batch_execute(&beginning).await.map_err(HookError::Backend) },
            )
        });
        let pool = Pool::builder(manager)
            .max_size(limits.most)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limits.patience))
            .create_timeout(Some(limits.patience))
            .recycle_timeout(Some(limits.patience))
            .post_create(begin)
            .build()
            .map_err(|error| ConnectError::Failed {
                url: url.to_string(),
                error: error.to_string(),
            })?;
        Ok(Connections { pool, limits })
    }

    /// A connection now, or why there is none.
    pub(crate) async fn one(&self) -> Result<Object, Trouble> {
        self.pool.get().await.map_err(Trouble::of_pool)
    }

    /// One statement, which is a transaction of its own: one way there and back.
    pub(crate) async fn query(
        &self,
        again: Again,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.run(again, self.limits.answer, |client| async move {
            let statement = client.prepare_cached(sql).await.map_err(Fault::undone)?;
            client.query(&statement, values).await.map_err(Fault::from)
        })
        .await
    }

    /// The same for a statement that answers with one row or none.
    pub(crate) async fn query_one(
        &self,
        again: Again,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(again, sql, values).await?.into_iter().next())
    }

    /// Several statements as one transaction. The beginning travels with the first of them.
    pub(crate) async fn transaction<T, F>(
        &self,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.whole(Again::Never, "BEGIN", self.limits.answer, work).await
    }

    /// Several questions that see the database as it was at one moment.
    pub(crate) async fn snapshot<T, F>(&self, work: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.whole(Again::Harmless, begin, self.limits.answer, work).await
    }

    /// The same for what may take long.
    pub(crate) async fn long_transaction<T, F>(
        &self,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = format!("BEGIN; SET LOCAL statement_timeout = {}", LONG.as_millis());
        self.whole(Again::Never, &begin, LONG, work).await
    }

    async fn whole<T, F>(
        &self,
        again: Again,
        begin: &str,
        limit: Duration,
        work: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.run(again, limit, |client| {
            let work = work(client.clone());
            async move {
                // The first is sent first, so what follows is inside of it.
                let (begun, done) = tokio::join!(client.batch_execute(begin), work);
                match begun.and(done) {
                    Ok(value) => Ok(client.batch_execute("COMMIT").await.map(|()| value)?),
                    Err(error) => {
                        // Where this does not come through, the connection is gone, and with it all that was done.
                        let _ = client.batch_execute("ROLLBACK").await;
                        Err(Fault::undone(error))
                    }
                }
            }
        })
        .await
    }

    /// Does something on a connection, and again where it is certain that nothing has happened: it lost against
    /// another transaction, or the connection was lost before the statement, or the end of the transaction, was sent.
    /// One that is lost later leaves that open, hence [`Again`].
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
            let lease = Lease::new(self.patiently().await?);
            let outcome = tokio::time::timeout(limit, work(lease.client())).await;
            let Ok(outcome) = outcome else {
                let text = "the database does not answer; it is not known whether it was done";
                return Err(StoreError::Unavailable(text.to_owned()));
            };
            lease.settle();
            let (trouble, undone) = match outcome {
                Ok(value) => return Ok(value),
                Err(fault) => (Trouble::of(&fault.error), fault.undone),
            };
            attempt += 1;
            match trouble.kind {
                Kind::Conflict if attempt < ATTEMPTS => pause(attempt).await,
                Kind::Refused if attempt < ATTEMPTS => pause(attempt).await,
                Kind::Lost if (undone || again == Again::Harmless) && !lost => lost = true,
                _ => return Err(trouble.error()),
            }
        }
    }

    /// A connection, as soon as there is a server.
    async fn patiently(&self) -> Result<Object, StoreError> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            match self.one().await {
                Ok(client) => return Ok(client),
                Err(trouble) if trouble.may_pass() && began.elapsed() < self.limits.patience => {
                    attempt += 1;
                    pause(attempt).await;
                }
                Err(trouble) => return Err(trouble.error()),
            }
        }
    }
}

/// What went wrong in the middle of work, and whether it is certain that nothing of it remains.
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

/// Longer every time, and never the same for two who met.
async fn pause(attempt: u32) {
    let most = 10_u64 << attempt.min(6);
    let mut byte = [0; 2];
    let _ = openssl::rand::rand_bytes(&mut byte);
    let part = u64::from(u16::from_le_bytes(byte)) * most / u64::from(u16::MAX);
    tokio::time::sleep(Duration::from_millis(most / 2 + part / 2)).await;
}

/// A connection that is lent. One that was left in the middle of something, because its caller went away or lost
/// patience, is closed and not lent again: what it was doing might go on under the next one's feet.
struct Lease {
    client: Option<Client>,
}

impl Lease {
    fn new(client: Object) -> Lease {
        Lease { client: Some(Arc::new(client)) }
    }

    fn client(&self) -> Client {
        Arc::clone(self.client.as_ref().expect("it is there until it is settled"))
    }

    /// It may be lent again.
    fn settle(mut self) {
        self.client = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().and_then(Arc::into_inner) {
            drop(Object::take(client));
        }
    }
}

/// What went wrong, as far as it matters here. It holds nothing of what was asked.
pub(crate) struct Trouble {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Undone in favour of another transaction.
    Conflict,
    /// The server does not take statements now, and has not taken this one.
    Refused,
    /// The connection is gone.
    Lost,
    /// It can't be done now: no room, too long.
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
            return Trouble { kind: if lost { Kind::Lost } else { Kind::Failed }, text };
        };
        let code = told.code();
        let kind = match code.code() {
            "40001" | "40P01" => Kind::Conflict,
            // After a fail-over the server that is left may still be one that only reads.
            "25006" | "57P03" => Kind::Refused,
            "57P01" | "57P02" | "57P05" | "25P03" => Kind::Lost,
            _ if code == &SqlState::LOCK_NOT_AVAILABLE || code == &SqlState::QUERY_CANCELED => {
                Kind::Unavailable
            }
            other if other.starts_with("08") => Kind::Lost,
            other if other.starts_with("53") || other.starts_with("58") => Kind::Unavailable,
            _ => Kind::Failed,
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
                Trouble { kind: Kind::Unavailable, text }
            }
            error => Trouble { kind: Kind::Failed, text: error.to_string() },
        }
    }

    /// Whether a server that starts, or another one in its place, may do better.
    fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Lost | Kind::Refused)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn error(self) -> StoreError {
        match self.kind {
            Kind::Failed => StoreError::Failed(self.text),
            _ => StoreError::Unavailable(self.text),
        }
    }
}

/// Whether the trouble is with the way to the server.
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

pub(crate) fn tls(wanted: &Tls) -> Result<MakeTlsConnector, openssl::error::ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls())?;
    match (wanted.trust, &wanted.root) {
        (Trust::Anybody, _) => builder.set_verify(SslVerifyMode::NONE),
        (_, Some(root)) => builder.set_ca_file(root)?,
        // OpenSSL is built along with us and does not know where this system keeps them.
        (_, None) => {
            let found = openssl_probe::probe();
            let folder = found.cert_dir.iter().find(|folder| folder.is_dir());
            builder
                .load_verify_locations(found.cert_file.as_deref(), folder.map(|f| f.as_path()))?;
        }
    }
    let named = wanted.trust == Trust::Named;
    let mut connector = MakeTlsConnector::new(builder.build());
    connector.set_callback(move |connection, _| {
        connection.set_verify_hostname(named);
        Ok(())
    });
    Ok(connector)
}
