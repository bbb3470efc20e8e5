//! The check of scheduled backups.

use std::time::Duration;

use hob_domain::Timestamp;
use hob_gateway::Check;

use super::check;
use crate::backup_record::BackupRecord;
use crate::settings::Resolved;

/// Reports how the last scheduled backup went. Returns `None` if none are scheduled.
pub fn check(settings: &Resolved) -> Option<Check> {
    let folder = settings.values.backup_folder.as_ref()?;
    let record = BackupRecord::read(&settings.home);
    if let Some(failure) = &record.failure {
        let text = format!("the backup of {} failed: {}", failure.at, failure.error);
        let fix =
            format!("make room in {}, or set backup.folder to another folder", folder.display());
        return Some(check::failed("backup", text, fix));
    }
    let Some(saved) = record.saved else {
        let text = format!("`hob serve` writes the first backup to {}", folder.display());
        return Some(check::passed("backup", text));
    };
    let text = format!("{} of {} ({} bytes)", saved.file.display(), saved.at, saved.bytes);
    if !saved.file.exists() {
        let fix = "look who removed it; `hob serve` writes the next one when it is due";
        return Some(check::warning("backup", format!("{text} is gone"), fix));
    }
    let age = Duration::try_from(Timestamp::now().duration_since(saved.at)).unwrap_or_default();
    if age > settings.values.backup_interval.saturating_mul(2) {
        let text = format!("the last backup is old: {text}");
        return Some(check::warning("backup", text, "keep `hob serve` running"));
    }
    Some(check::passed("backup", text))
}
