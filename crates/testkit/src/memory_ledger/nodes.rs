//! Nodes in memory.

use std::time::Instant;

use async_trait::async_trait;
use hob_domain::{Node, NodeId, NodeStore, StoreError};

use super::MemoryLedger;

#[async_trait]
impl NodeStore for MemoryLedger {
    async fn beat(&self, node: &NodeId, address: &str) -> Result<(), StoreError> {
        self.state().nodes.insert(node.clone(), (address.to_owned(), Instant::now()));
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        let state = self.state();
        let node = |(id, (address, beat)): (&NodeId, &(String, Instant))| Node {
            id: id.clone(),
            address: address.clone(),
            age: beat.elapsed(),
        };
        Ok(state.nodes.iter().map(node).collect())
    }

    async fn gone(&self, node: &NodeId) -> Result<(), StoreError> {
        self.state().nodes.remove(node);
        Ok(())
    }
}
