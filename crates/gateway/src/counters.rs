//! Counters of HTTP requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests by the class of their status: 1xx to 5xx.
#[derive(Debug, Default)]
pub struct Requests {
    by_class: [AtomicU64; 5],
}

impl Requests {
    /// Counts one response with this status.
    pub(crate) fn count(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns each class (its first digit) with its count.
    pub(crate) fn by_class(&self) -> [(usize, u64); 5] {
        std::array::from_fn(|class| (class + 1, self.by_class[class].load(Ordering::Relaxed)))
    }
}
