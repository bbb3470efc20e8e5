//! The writer thread. Jobs that arrive while it is busy are committed together, because a durable commit costs the same
//! for one job as for a hundred.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hob_domain::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::commit_mark::{CommitMark, count_commit, read_number};
use super::error::failed;

/// The maximum number of jobs per commit.
const MAX_GROUP_JOBS: usize = 256;
/// The number of jobs in a group from which on there are many concurrent writers.
const BUSY_GROUP_JOBS: usize = 3;
/// The minimum interval between commits with many concurrent writers.
const MIN_COMMIT_INTERVAL: Duration = Duration::from_millis(3);

/// A handle to the writer thread. Dropping it waits until all jobs are done and the connection is closed.
pub(crate) struct Writer {
    /// `None` only during drop, which ends the thread.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(connection: Connection, mark: Option<CommitMark>) -> io::Result<Writer> {
        let (jobs, waiting) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(connection, mark, &waiting))?;
        Ok(Writer { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs a unit of work: all of it is durable if this returns `Ok`, otherwise none of it was done. It runs to its end
    /// even if the caller stops waiting. Jobs of one caller run in the order of the calls.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (caller, answer) = oneshot::channel();
        let job = Box::new(Call { work: Some(work), value: None, caller });
        if let Some(jobs) = &self.jobs {
            // Fails only if the thread has ended, and then there is no answer either.
            let _ = jobs.send(job);
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Failed("the writer thread has ended".to_owned())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    mut connection: Connection,
    mut mark: Option<CommitMark>,
    waiting: &mpsc::Receiver<Box<dyn Job>>,
) {
    let mut crowded = false;
    let mut last = Instant::now();
    while let Ok(first) = waiting.recv() {
        // A single writer never waits. With many writers a short wait turns many commits, the most expensive part, into
        // one; it never exceeds the interval since the last commit.
        let until = last + MIN_COMMIT_INTERVAL;
        if crowded && let Some(pause) = until.checked_duration_since(Instant::now()) {
            std::thread::sleep(pause);
        }
        let mut group = vec![first];
        group.extend(waiting.try_iter().take(MAX_GROUP_JOBS - 1));
        crowded = group.len() >= BUSY_GROUP_JOBS;
        let committed = commit(&mut connection, mark.as_mut(), &mut group);
        last = Instant::now();
        for job in group {
            job.answer(&committed);
        }
    }
}

/// Runs jobs in one transaction, each in a savepoint of its own.
fn commit(
    connection: &mut Connection,
    mark: Option<&mut CommitMark>,
    group: &mut [Box<dyn Job>],
) -> Result<(), StoreError> {
    let changes_before = connection.total_changes();
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let step = |sql| transaction.prepare_cached(sql)?.execute([]);
    for job in group {
        step("SAVEPOINT job").map_err(failed)?;
        let outcome = job.run(&transaction);
        // A full disk, for example, ends the whole transaction: there is no savepoint to return to.
        if transaction.is_autocommit() {
            let text = "another write that was to be committed with this one could not be done";
            return Err(StoreError::Unavailable(text.to_owned()));
        }
        if let Outcome::Undo = outcome {
            step("ROLLBACK TO job").map_err(failed)?;
        }
        step("RELEASE job").map_err(failed)?;
    }
    if transaction.total_changes() == changes_before {
        return transaction.commit().map_err(failed);
    }
    let last = read_number(&transaction).map_err(failed)?;
    // Commits are counted once a server has used the file, which begins with the first number.
    if last == 0 {
        return transaction.commit().map_err(failed);
    }
    let number = count_commit(&transaction, last).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    if let Some(mark) = mark {
        // The commit is durable. If this fails, only its loss would stay unnoticed.
        let _ = mark.write(number);
    }
    Ok(())
}

enum Outcome {
    Keep,
    Undo,
}

/// A job of any result type.
trait Job: Send {
    fn run(&mut self, transaction: &Transaction<'_>) -> Outcome;

    /// Answers the caller once the outcome of its group's commit is known.
    fn answer(self: Box<Self>, committed: &Result<(), StoreError>);
}

struct Call<T, W> {
    /// `None` after it has run.
    work: Option<W>,
    value: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Job for Call<T, W>
where
    T: Send,
    W: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> Outcome {
        let Some(work) = self.work.take() else { return Outcome::Undo };
        // The savepoint undoes what a panic left half done.
        let value = catch_unwind(AssertUnwindSafe(|| work(transaction))).unwrap_or_else(|_| {
            Err(StoreError::Failed(
                "the database operation crashed; see the log of the server".to_owned(),
            ))
        });
        let outcome = if value.is_ok() { Outcome::Keep } else { Outcome::Undo };
        self.value = Some(value);
        outcome
    }

    fn answer(self: Box<Self>, committed: &Result<(), StoreError>) {
        let answer = match (self.value, committed) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.clone()),
            (Some(value), Ok(())) => value,
            (None, Ok(())) => {
                Err(StoreError::Failed("the database operation was skipped; try again".to_owned()))
            }
        };
        // A caller that stopped waiting needs no answer.
        let _ = self.caller.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::path::{Path, PathBuf};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Poll;

    use tokio::task::JoinSet;

    use super::*;

    fn connect(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, who TEXT, n INTEGER)",
            )
            .unwrap();
        connection
    }

    fn place(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("notes.db")
    }

    fn note(transaction: &Transaction<'_>, who: &str, n: u32) -> Result<u32, StoreError> {
        transaction
            .execute("INSERT INTO notes (who, n) VALUES (?1, ?2)", (who, n))
            .map_err(failed)?;
        Ok(n)
    }

    fn notes(path: &Path) -> Vec<(String, u32)> {
        let connection = connect(path);
        let mut statement = connection.prepare("SELECT who, n FROM notes ORDER BY id").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Polls a call once, which sends its work.
    async fn send<T>(mut call: Pin<&mut impl Future<Output = T>>) {
        poll_fn(|context| {
            let _ = call.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }

    type Work = Box<dyn FnOnce(&Transaction<'_>) -> Result<u32, StoreError> + Send>;

    /// Sends all jobs while the writer is busy, so that they form one group, and returns the answers.
    async fn together(writer: &Writer, group: Vec<Work>) -> Vec<Result<u32, StoreError>> {
        let (open, gate) = mpsc::channel();
        let (say, begun) = mpsc::channel();
        let busy: Work = Box::new(move |_| {
            say.send(()).unwrap();
            Ok(gate.recv().unwrap())
        });
        let mut at_something = Box::pin(writer.run(busy));
        send(at_something.as_mut()).await;
        begun.recv().unwrap();
        let mut calls: Vec<_> = group.into_iter().map(|work| Box::pin(writer.run(work))).collect();
        for call in &mut calls {
            send(call.as_mut()).await;
        }
        open.send(0).unwrap();
        at_something.await.unwrap();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await);
        }
        answers
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_many_write_is_all_there_in_the_order_of_each() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Arc::new(Writer::start(connect(&place(&folder)), None).unwrap());
        let mut callers = JoinSet::new();
        for caller in 0..20 {
            let writer = writer.clone();
            callers.spawn(async move {
                for n in 0..25 {
                    let who = caller.to_string();
                    writer.run(move |transaction| note(transaction, &who, n)).await.unwrap();
                }
            });
        }
        callers.join_all().await;
        let found = notes(&place(&folder));
        assert_eq!(found.len(), 500);
        for caller in 0..20 {
            let own = found.iter().filter(|(who, _)| *who == caller.to_string()).map(|(_, n)| *n);
            assert!(own.eq(0..25));
        }
    }

    #[tokio::test]
    async fn what_waits_is_committed_together_in_the_order_of_the_calls() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::start(connect(&place(&folder)), None).unwrap();
        let path = place(&folder);
        let answers = together(
            &writer,
            vec![
                Box::new(|transaction| note(transaction, "a", 1)),
                Box::new(|transaction| note(transaction, "a", 2)),
                Box::new(move |_| Ok(notes(&path).len() as u32)),
            ],
        )
        .await;
        let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [1, 2, 0], "in the middle of the group nobody else sees anything");
        assert_eq!(notes(&place(&folder)), [("a".to_owned(), 1), ("a".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn a_failure_hurts_no_neighbour_and_a_panic_does_not_end_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::start(connect(&place(&folder)), None).unwrap();
        let answers = together(
            &writer,
            vec![
                Box::new(|transaction| note(transaction, "good", 1)),
                Box::new(|transaction| {
                    note(transaction, "bad", 2)?;
                    Err(StoreError::Exists("it".to_owned()))
                }),
                Box::new(|transaction| {
                    note(transaction, "worse", 3)?;
                    panic!("as a test")
                }),
                Box::new(|transaction| note(transaction, "good", 4)),
            ],
        )
        .await;
        assert!(matches!(answers[0], Ok(1)));
        assert!(matches!(answers[1], Err(StoreError::Exists(_))));
        assert!(matches!(answers[2], Err(StoreError::Failed(_))));
        assert!(matches!(answers[3], Ok(4)));
        assert_eq!(notes(&place(&folder)), [("good".to_owned(), 1), ("good".to_owned(), 4)]);
    }

    /// A full disk ends the whole group's transaction, and no job of it succeeds.
    #[tokio::test]
    async fn what_ends_the_transaction_ends_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let connection = connect(&place(&folder));
        connection.pragma_update_and_check(None, "max_page_count", 3, |_| Ok(())).unwrap();
        let writer = Writer::start(connection, None).unwrap();
        let answers = together(
            &writer,
            vec![
                Box::new(|transaction| note(transaction, "small", 1)),
                Box::new(|transaction| note(transaction, &"large".repeat(10_000), 2)),
                Box::new(|transaction| note(transaction, "small", 3)),
            ],
        )
        .await;
        for answer in answers {
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        assert_eq!(writer.run(|transaction| note(transaction, "small", 4)).await.unwrap(), 4);
        assert_eq!(notes(&place(&folder)), [("small".to_owned(), 4)]);
    }

    #[tokio::test]
    async fn while_somebody_else_writes_a_group_is_told_to_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::start(connect(&place(&folder)), None).unwrap();
        let other = connect(&place(&folder));
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        for _ in 0..2 {
            let refused = writer.run(|transaction| note(transaction, "a", 1)).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        }
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(writer.run(|transaction| note(transaction, "a", 1)).await.unwrap(), 1);
    }

    /// After the drop the file is closed, and it contains also the jobs whose callers stopped waiting.
    #[tokio::test]
    async fn a_drop_ends_what_was_begun_and_releases_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::start(connect(&place(&folder)), None).unwrap();
        let mut call = Box::pin(writer.run(|transaction| {
            thread::sleep(Duration::from_millis(50));
            note(transaction, "left", 1)
        }));
        send(call.as_mut()).await;
        drop(call);
        drop(writer);
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "the last to close it has put the log away");
        assert_eq!(notes(&place(&folder)), [("left".to_owned(), 1)]);
    }
}
