// The titles of sessions. A session's title does not change, so that of a live one is asked for once.
import { signal } from '@preact/signals';

import { ApiError } from './api';
import type { Session } from './shapes';

/** Up to this many titles are requested one by one; for more, the whole list is cheaper. */
const FEW = 4;
/** What could not be answered is not asked for again sooner. */
const PAUSE = 8_000;

/** A session's own words for itself. */
export function titleOf(meta: Record<string, unknown> | null | undefined): string {
  const named = ['title', 'name', 'purpose', 'for'].map((key) => meta?.[key]).find((value) => typeof value === 'string');
  return typeof named === 'string' ? named : '';
}

type Titled = Pick<Session, 'session_id' | 'meta'>;

interface Source {
  one: (id: string) => Promise<Titled>;
  all: () => Promise<Titled[]>;
}

export class Titles {
  readonly known = signal<ReadonlyMap<string, string>>(new Map());
  private asking = false;
  private notBefore = 0;

  constructor(
    private readonly source: Source,
    private readonly clock: () => number = Date.now,
  ) {}

  /** These are live now: asks for the titles that are not known. With new ones those of all others are forgotten. */
  async want(ids: ReadonlySet<string>): Promise<void> {
    const known = this.known.peek();
    const unknown = [...ids].filter((id) => !known.has(id));
    if (!unknown.length || this.asking || this.clock() < this.notBefore) return;
    this.asking = true;
    try {
      const found = unknown.length > FEW ? await this.source.all() : await this.each(unknown);
      const next = new Map([...known].filter(([id]) => ids.has(id)));
      // One that is not in the answer is gone again, and has none.
      for (const id of unknown) next.set(id, '');
      for (const session of found) if (ids.has(session.session_id)) next.set(session.session_id, titleOf(session.meta));
      this.known.value = next;
    } catch (error) {
      // Without titles the folders are shown. The next load after a reconnect or sign-in tries again.
      if (error instanceof ApiError && error.status >= 500) this.notBefore = this.clock() + PAUSE;
    } finally {
      this.asking = false;
    }
  }

  private async each(ids: string[]): Promise<Titled[]> {
    const answers = ids.map((id) =>
      this.source.one(id).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      }),
    );
    return (await Promise.all(answers)).filter((one) => one !== null);
  }
}
