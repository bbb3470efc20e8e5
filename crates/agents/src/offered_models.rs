//! The models that agents have offered since the server started.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most models of an agent that are kept.
const MAX_MODELS: usize = 100;
/// The longest name of a model that is kept, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// The names of models by the names of an app and an agent.
type ByAppAndAgent = HashMap<(String, String), Vec<String>>;

/// The models that each agent offered in the newest session of each app. Apps do not see those of others, because an agent
/// may offer what it has read in the app's files. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OfferedModels {
    offered: Arc<Mutex<ByAppAndAgent>>,
}

impl OfferedModels {
    /// Keeps the models that an agent offers. An agent that offers none keeps what is known.
    pub fn record(&self, app: &str, agent: &str, models: Vec<String>) {
        let is_name = |model: &String| {
            (1..=MAX_NAME_BYTES).contains(&model.len()) && !model.contains(char::is_control)
        };
        let models: Vec<String> = models.into_iter().filter(is_name).take(MAX_MODELS).collect();
        if !models.is_empty() {
            self.lock().insert((app.to_owned(), agent.to_owned()), models);
        }
    }

    /// Returns the models that an agent has offered to an app.
    pub fn of(&self, app: &str, agent: &str) -> Vec<String> {
        self.lock().get(&(app.to_owned(), agent.to_owned())).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ByAppAndAgent> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_app_has_the_newest_models() {
        let offered = OfferedModels::default();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        offered.record("a", "codex", names(&["old"]));
        offered.record("a", "codex", names(&["large", "", "a\nb"]));
        offered.record("a", "codex", Vec::new());
        assert_eq!(offered.of("a", "codex"), ["large"]);
        assert_eq!(offered.of("b", "codex"), [""; 0]);
        assert_eq!(offered.of("a", "gemini"), [""; 0]);
    }
}
