//! The sweeper: idle sessions are closed, closed ones deleted, and with them what they left.

use std::path::Path;
use std::time::Duration;

use hob_domain::Timestamp;

use super::sessions::Sessions;

impl Sessions {
    /// Sweeps now and then, until told to stop.
    pub async fn keep_swept(self) {
        let options = &self.inner.options;
        loop {
            tokio::select! {
                () = tokio::time::sleep(options.limits.sweep_interval) => {}
                () = options.stopping.cancelled() => return,
            }
            self.sweep(Timestamp::now()).await;
        }
    }

    /// One sweep. What fails is tried again with the next one.
    pub async fn sweep(&self, now: Timestamp) {
        let options = &self.inner.options;
        let before = |age: Duration| {
            let age = jiff_seconds(age);
            Timestamp::from_second(now.as_second().saturating_sub(age)).unwrap_or(Timestamp::MIN)
        };
        let then = before(options.limits.ttl);
        match self.store().idle_since(then).await {
            Ok(idle) => {
                for (app, id) in idle {
                    let Some(entry) = self.here_or_taken(&app, &id).await else { continue };
                    if let Err(error) = self.close_idle(&entry, then).await {
                        tracing::error!(%error, session = %id, "an idle session was not closed");
                    }
                }
            }
            Err(error) => tracing::error!(%error, "idle sessions could not be looked for"),
        }
        let old = before(options.limits.hard_ttl);
        match self.store().delete_closed(old).await {
            Ok(deleted) => deleted.iter().for_each(|id| self.forget_place(id)),
            Err(error) => tracing::error!(%error, "closed sessions could not be deleted"),
        }
        let (files, age) = (options.sandbox.files.clone(), options.limits.hard_ttl);
        let _ = tokio::task::spawn_blocking(move || remove_old_files(&files, age)).await;
        self.drop_orphans().await;
        if let Some(cluster) = &self.inner.cluster
            && let Err(error) = cluster.options.store.drop_files(None, age).await
        {
            tracing::error!(%error, "old files could not be deleted");
        }
    }

    /// Sessions that somebody else deleted, with their app: their agents have nobody to work for.
    async fn drop_orphans(&self) {
        let entries: Vec<_> = self.open().values().cloned().collect();
        for entry in entries {
            if let Ok(None) = self.store().session(&entry.app, &entry.id).await {
                entry.closing.cancel();
                self.drop_entry(&entry);
                self.remove_workspace(&entry.id);
            }
        }
    }
}

fn jiff_seconds(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}

/// Uploads that are older than closed sessions are kept.
fn remove_old_files(files: &Path, age: Duration) {
    let folders = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    for app in folders(files) {
        for upload in folders(&app.path()) {
            let modified = upload.metadata().and_then(|metadata| metadata.modified()).ok();
            if modified.and_then(|at| at.elapsed().ok()).is_some_and(|old| old > age) {
                let path = upload.path();
                let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_uploads_go() {
        let place = tempfile::tempdir().unwrap();
        let upload = place.path().join("app/1234");
        std::fs::create_dir_all(&upload).unwrap();
        std::fs::write(upload.join("x.txt"), "x").unwrap();
        remove_old_files(place.path(), Duration::from_secs(60));
        assert!(upload.exists());
        let past = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::open(&upload).unwrap().set_modified(past).unwrap();
        remove_old_files(place.path(), Duration::from_secs(60));
        assert!(!upload.exists() && place.path().join("app").exists());
    }
}
