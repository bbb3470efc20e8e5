//! Nodes in memory.

use std::time::Instant;

use async_trait::async_trait;
use hob_domain::{Node, NodeId, NodeStore, StoreError};

use super::MemoryLedger;

#[async_trait]
impl NodeStore for MemoryLedger {
    async fn heartbeat(&self, node: &NodeId) -> Result<(), StoreError> {
        self.state().nodes.insert(node.clone(), Instant::now());
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        let state = self.state();
        let node = |(id, beat): (&NodeId, &Instant)| Node { id: id.clone(), age: beat.elapsed() };
        Ok(state.nodes.iter().map(node).collect())
    }

    async fn remove_node(&self, node: &NodeId) -> Result<(), StoreError> {
        self.state().nodes.remove(node);
        Ok(())
    }
}
