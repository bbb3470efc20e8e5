import type { Hit } from '../../shapes';

/** Puts the hits of a session together. The order is that of each session's best hit. */
export function groups(hits: Hit[]): Hit[][] {
  const found = new Map<string, Hit[]>();
  for (const hit of hits) {
    // What belongs to no session stands alone.
    const key = hit.session_id || hit.record_id;
    const group = found.get(key);
    if (group) group.push(hit);
    else found.set(key, [hit]);
  }
  return [...found.values()];
}
