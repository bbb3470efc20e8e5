//! Copying all rows from a source to a target, resumably, and comparing both at the end.

use std::collections::BTreeSet;

use async_trait::async_trait;
use hob_domain::StoreError;
use sha2::{Digest, Sha256};

use super::endpoint::{Endpoint, TargetState};
use super::error::MigrateError;
use super::part::Part;

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationProgress {
    pub table: &'static str,
    pub done: u64,
    pub all: u64,
    /// Whether the table is being read again to compare it.
    pub comparing: bool,
}

/// A table that was migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedTable {
    pub table: &'static str,
    pub rows: u64,
    /// The SHA-256 of all rows, equal in source and target.
    pub digest: String,
}

/// A callback that receives the progress of a migration.
pub type ReportProgress<'a> = &'a (dyn Fn(MigrationProgress) + Send + Sync);

/// A migration from one store to another.
pub struct Migration<'a> {
    steps: Box<dyn MigrationSteps + 'a>,
}

impl<'a> Migration<'a> {
    pub(crate) fn new<P: Part + 'static>(
        from: impl Endpoint<P> + 'a,
        to: impl Endpoint<P> + 'a,
        parts: &'static [P],
    ) -> Migration<'a> {
        Migration { steps: Box::new(Pair { from: Box::new(from), to: Box::new(to), parts }) }
    }

    /// Checks whether the migration is possible. Changes nothing.
    pub async fn check(&self) -> Result<(), MigrateError> {
        self.steps.check().await
    }

    /// Marks the target as partially migrated, unless it is in use.
    pub async fn begin(&self) -> Result<(), MigrateError> {
        self.steps.begin().await
    }

    /// Runs the migration, or continues an incomplete one. Nothing else may use source or target meanwhile.
    pub async fn run(&self, tell: ReportProgress<'_>) -> Result<Vec<MigratedTable>, MigrateError> {
        self.steps.run(tell).await
    }
}

#[async_trait]
trait MigrationSteps: Send + Sync {
    async fn check(&self) -> Result<(), MigrateError>;
    async fn begin(&self) -> Result<(), MigrateError>;
    async fn run(&self, tell: ReportProgress<'_>) -> Result<Vec<MigratedTable>, MigrateError>;
}

struct Pair<'a, P: 'static> {
    from: Box<dyn Endpoint<P> + 'a>,
    to: Box<dyn Endpoint<P> + 'a>,
    parts: &'static [P],
}

#[async_trait]
impl<P: Part + 'static> MigrationSteps for Pair<'_, P> {
    async fn check(&self) -> Result<(), MigrateError> {
        match self.to.target_state().await? {
            TargetState::Unknown => self.check_target().await,
            // Rows that did not come from this source are cleared.
            TargetState::PartiallyMigrated => Ok(()),
            TargetState::InUse => self.check_equal(&|_| {}).await.map(drop),
        }
    }

    async fn begin(&self) -> Result<(), MigrateError> {
        if self.to.target_state().await? != TargetState::InUse {
            self.to.begin().await?;
        }
        Ok(())
    }

    async fn run(&self, tell: ReportProgress<'_>) -> Result<Vec<MigratedTable>, MigrateError> {
        let state = self.to.target_state().await?;
        if state == TargetState::InUse {
            return self.check_equal(tell).await;
        }
        match self.run_once(tell).await {
            // The source has changed since the incomplete migration: start over.
            Err(MigrateError::Occupied { .. } | MigrateError::Differs { .. })
                if state == TargetState::PartiallyMigrated =>
            {
                self.to.clear().await?;
                self.run_once(tell).await
            }
            done => done,
        }
    }
}

impl<P: Part + 'static> Pair<'_, P> {
    async fn run_once(&self, tell: ReportProgress<'_>) -> Result<Vec<MigratedTable>, MigrateError> {
        self.check_target().await?;
        self.to.begin().await?;
        for part in self.parts {
            self.copy(*part, tell).await?;
        }
        self.to.finish().await?;
        let moved = self.compare(tell).await?;
        self.to.complete().await?;
        Ok(moved)
    }

    /// Checks that every identifying row of the target came from the source.
    async fn check_target(&self) -> Result<(), MigrateError> {
        for part in self.parts.iter().filter(|part| part.identifies_store()) {
            let found = identities(&*self.to, *part).await?;
            if !found.is_empty() && !found.is_subset(&identities(&*self.from, *part).await?) {
                return Err(MigrateError::Occupied { table: part.name() });
            }
        }
        Ok(())
    }

    /// Compares a target that is in use, and leaves it unchanged. If it equals the source, nothing is left to do.
    async fn check_equal(
        &self,
        tell: ReportProgress<'_>,
    ) -> Result<Vec<MigratedTable>, MigrateError> {
        match self.compare(tell).await {
            Err(MigrateError::Differs { table, .. }) => Err(MigrateError::Occupied { table }),
            done => done,
        }
    }

    async fn compare(&self, tell: ReportProgress<'_>) -> Result<Vec<MigratedTable>, MigrateError> {
        let mut moved = Vec::new();
        for part in self.parts {
            let (source, source_rows) = digest(&*self.from, *part, tell).await?;
            let (target, target_rows) = digest(&*self.to, *part, tell).await?;
            if source != target {
                return Err(MigrateError::Differs { table: part.name(), source_rows, target_rows });
            }
            moved.push(MigratedTable { table: part.name(), rows: source_rows, digest: source });
        }
        Ok(moved)
    }

    async fn copy(&self, part: P, tell: ReportProgress<'_>) -> Result<(), MigrateError> {
        let all = self.from.count(part).await?;
        let mut done = self.to.count(part).await?.min(all);
        // Rows are stored in key order, so everything before the last key has arrived.
        let mut after = self.to.last(part).await?;
        loop {
            tell(MigrationProgress { table: part.name(), done, all, comparing: false });
            let rows = self.from.page(part, after, part.max_page_rows()).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(part.key_of(last));
            done += rows.len() as u64;
            self.to.put(part, rows).await?;
        }
    }
}

/// Returns the identities that the rows of a part have.
async fn identities<P: Part>(
    endpoint: &dyn Endpoint<P>,
    part: P,
) -> Result<BTreeSet<String>, StoreError> {
    let (mut identities, mut after) = (BTreeSet::new(), None);
    loop {
        let rows = endpoint.page(part, after, part.max_page_rows()).await?;
        let Some(last) = rows.last() else { return Ok(identities) };
        after = Some(part.key_of(last));
        identities.extend(rows.iter().filter_map(|row| part.identity_of(row)));
    }
}

/// Returns a digest of all rows in key order, and their number.
async fn digest<P: Part>(
    endpoint: &dyn Endpoint<P>,
    part: P,
    tell: ReportProgress<'_>,
) -> Result<(String, u64), StoreError> {
    let all = endpoint.count(part).await?;
    let (mut hash, mut done, mut after) = (Sha256::new(), 0, None);
    loop {
        tell(MigrationProgress { table: part.name(), done, all, comparing: true });
        let rows = endpoint.page(part, after, part.max_page_rows()).await?;
        let Some(last) = rows.last() else { break };
        after = Some(part.key_of(last));
        done += rows.len() as u64;
        for cell in rows.iter().flatten() {
            cell.hash(&mut hash);
        }
    }
    Ok((hob_domain::secret::hex(&hash.finalize()), done))
}
