//! Counts turns outside sessions for the usage of their app.

use hob_domain::session::{SessionStore, SessionlessTurn, TurnState, TurnUsage, UsageNote};
use hob_domain::{AppName, Timestamp};

/// Adds an ended turn that is not to be remembered to the usage of its app.
pub(crate) async fn count_turn(
    store: &dyn SessionStore,
    app: AppName,
    state: TurnState,
    usage: TurnUsage,
) {
    let turn = SessionlessTurn { app: app.clone(), state, usage, outbox: None };
    let note = UsageNote::SessionlessTurn(turn);
    if let Err(error) = store.note_usage(&note, Timestamp::now()).await {
        tracing::error!(%error, %app, "failed to count a turn");
    }
}
