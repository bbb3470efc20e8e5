//! Nodes in memory.

use std::time::Instant;

use async_trait::async_trait;
use hob_domain::{Node, NodeEvent, NodeId, NodeStore, StoreError};

use super::MemoryLedger;

#[async_trait]
impl NodeStore for MemoryLedger {
    async fn note_node(&self, node: &NodeId, event: NodeEvent) -> Result<(), StoreError> {
        let nodes = &mut self.state().nodes;
        match event {
            NodeEvent::Heartbeat => drop(nodes.insert(node.clone(), Instant::now())),
            NodeEvent::Left => drop(nodes.remove(node)),
        }
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        let state = self.state();
        let node = |(id, beat): (&NodeId, &Instant)| Node { id: id.clone(), age: beat.elapsed() };
        Ok(state.nodes.iter().map(node).collect())
    }
}
