//! Which facts and prompts are in force, as conditions on `t` in the SQL of both backends. Sources are stored by
//! their names ([`hob_domain::memory::TurnSource`]).

/// The sources of turns that an agent wrote.
const OF_AGENTS: &str = "('mcp', 'agent')";

/// The sources of facts that an agent wrote, or may have written: memory files are imported.
const FACTS_OF_AGENTS: &str = "('mcp', 'agent', 'import', 'repository')";

/// Returns the condition that a turn is a fact of an agent.
pub(super) fn is_fact_of_agent() -> String {
    format!("(t.source IN {FACTS_OF_AGENTS})")
}

/// Returns the condition that no correction takes a turn out of force. A correction by an agent does so only to what an
/// agent wrote: of the corrections of another turn, one must be by somebody else. `turns` is the table.
pub(super) fn is_in_force(turns: &str) -> String {
    format!(
        "(t.superseded_by IS NULL OR t.source NOT IN {FACTS_OF_AGENTS} AND NOT EXISTS (
             WITH RECURSIVE corrections (id) AS (
                 SELECT t.id UNION SELECT n.id FROM {turns} n
                 JOIN corrections c ON n.supersedes = c.id AND n.speaker = t.speaker)
             SELECT 1 FROM {turns} n JOIN corrections c ON n.supersedes = c.id
             WHERE n.speaker = t.speaker AND n.source NOT IN {OF_AGENTS}))"
    )
}
