//! The models that agents have offered to apps. They are in the ledger, so that they outlive the server and all nodes know
//! them.

use std::collections::HashMap;

use hob_domain::{
    AgentName, AppName, DocumentChange, DocumentKind, DocumentStore, StoreError, StoredDocument,
    Timestamp,
};
use serde_json::json;

/// The most models of an agent that are kept.
const MAX_MODELS: usize = 100;
/// The longest name of a model that is kept, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// What the id of a document begins with, before the agent's name: documents of all kinds have different ids.
const ID_PREFIX: &str = "models_";

/// Stores the models that an agent offers to an app, in place of those of an earlier session. An agent that offers none
/// changes nothing.
pub(super) async fn record(
    store: &dyn DocumentStore,
    app: &AppName,
    agent: &AgentName,
    models: Vec<String>,
) -> Result<(), StoreError> {
    let models = kept(models);
    if models.is_empty() {
        return Ok(());
    }
    let id = format!("{ID_PREFIX}{agent}");
    let known = store.documents(app, DocumentKind::AgentModels, Some(&id)).await?;
    if known.iter().any(|document| names(document) == models) {
        return Ok(());
    }
    let document = StoredDocument {
        app: app.clone(),
        kind: DocumentKind::AgentModels,
        id,
        created_at: Timestamp::now(),
        input: String::new(),
        body: json!(models).to_string(),
    };
    store.change_document(&DocumentChange::Save(document)).await?;
    Ok(())
}

/// Returns the models that each agent has offered to an app, by the names of the agents. Apps do not see those of others,
/// because an agent may offer what it has read in the app's files.
pub(super) async fn offered(
    store: &dyn DocumentStore,
    app: &AppName,
) -> Result<HashMap<String, Vec<String>>, StoreError> {
    let documents = store.documents(app, DocumentKind::AgentModels, None).await?;
    let of_agent = |document: StoredDocument| {
        let agent = document.id.strip_prefix(ID_PREFIX)?.to_owned();
        Some((agent, names(&document)))
    };
    Ok(documents.into_iter().filter_map(of_agent).collect())
}

fn names(document: &StoredDocument) -> Vec<String> {
    serde_json::from_str(&document.body).unwrap_or_default()
}

/// Returns the models whose names can be kept.
fn kept(models: Vec<String>) -> Vec<String> {
    let is_name = |model: &String| {
        (1..=MAX_NAME_BYTES).contains(&model.len()) && !model.contains(char::is_control)
    };
    models.into_iter().filter(is_name).take(MAX_MODELS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_are_bounded() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let models = ["large", "", "a\nb", &long, "small"].map(str::to_owned).into();
        assert_eq!(kept(models), ["large", "small"]);
        let many = (0..2 * MAX_MODELS).map(|number| number.to_string()).collect();
        assert_eq!(kept(many).len(), MAX_MODELS);
    }
}
