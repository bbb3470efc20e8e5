//! Several nodes on one PostgreSQL: any node may be asked, and nodes may be killed, paused, drained or cut off.
//! Tests that run on every backend are next to their subjects.
//!
//! Small counts here; `HOB_CAMPAIGN=1` runs the full ones and prints figures. Nodes are chosen at random; a run prints
//! its seed, and `HOB_TEST_SEED` repeats it.

mod any_node;
mod fail_over;
mod faults;
mod isolation;
mod limits;
mod setup;
mod talker;
