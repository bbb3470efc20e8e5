// What has happened between two looks at the live sessions that a person may want to know.
import type { Live } from '../shapes';

export type Change =
  /** A session may have questions: its log says which. */
  | { kind: 'waits'; live: Live }
  /** A session of the owner has finished its turns. */
  | { kind: 'done'; live: Live };

/** Compares the live sessions with those of the last look. The first look reports only what waits. */
export class Changes {
  private last: Map<string, Live> | null = null;

  next(list: Live[]): Change[] {
    const sessions = list.filter((live) => live.session_id !== null);
    const changes = sessions.flatMap((live): Change[] => {
      if (live.waiting) return [{ kind: 'waits', live }];
      const before = this.last?.get(live.id);
      const worked = before && (before.busy || live.turns > before.turns);
      // An app waits for its turns itself.
      return worked && !live.busy && live.app === '@owner' ? [{ kind: 'done', live }] : [];
    });
    this.last = new Map(sessions.map((live) => [live.id, live]));
    return changes;
  }
}
