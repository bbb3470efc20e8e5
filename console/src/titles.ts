// The titles of sessions: what their metadata says, else the beginning of their first prompt. Neither changes, so that each
// is asked for once.
import { signal } from '@preact/signals';

import { ApiError, get } from './api';
import { cutAt } from './events/detail';
import type { Session, Turn } from './shapes';

/** Up to this many titles are requested one by one; for more, the whole list is cheaper. */
const FEW = 4;
/** What could not be answered is not asked for again sooner. */
const PAUSE = 8_000;

/** A session's own words for itself. */
export function titleOf(meta: Record<string, unknown> | null | undefined): string {
  const named = ['title', 'name', 'purpose', 'for'].map((key) => meta?.[key]).find((value) => typeof value === 'string');
  return typeof named === 'string' ? named : '';
}

/** How much of a prompt is a title. */
const MAX_TITLE_CHARS = 80;
/** How many first prompts are asked for at a time, and for one list. */
const AT_A_TIME = 4;
const MOST_PROMPTS = 100;

type Titled = Pick<Session, 'session_id' | 'meta'>;
type Prompted = Titled & Pick<Session, 'turn_count'>;

/** The first line of a prompt that says something, cut to the length of a title. */
export function titleOfPrompt(prompt: string): string {
  const line = prompt.split('\n').map((one) => one.trim()).find(Boolean) ?? '';
  return line.length > MAX_TITLE_CHARS ? `${line.slice(0, cutAt(line, MAX_TITLE_CHARS - 1)).trimEnd()}…` : line;
}

/** The first prompts of sessions that have no words for themselves. */
export class FirstPrompts {
  readonly known = signal<ReadonlyMap<string, string>>(new Map());
  private readonly asked = new Set<string>();

  constructor(private readonly ask: (id: string) => Promise<string | undefined>) {}

  /** Asks for those that are missing in a list, in its order. The rest of a long list comes with the next call. */
  async want(sessions: Prompted[]): Promise<void> {
    const missing = sessions.filter((one) => one.turn_count > 0 && !titleOf(one.meta) && !this.asked.has(one.session_id));
    const wanted = missing.slice(0, MOST_PROMPTS).map((one) => one.session_id);
    for (const id of wanted) this.asked.add(id);
    const left = [...wanted];
    const work = async () => {
      for (let id = left.shift(); id !== undefined; id = left.shift()) {
        try {
          const title = titleOfPrompt((await this.ask(id)) ?? '');
          if (title) this.known.value = new Map(this.known.peek()).set(id, title);
        } catch {
          // Without a title the folder is shown. The next load of the list asks again.
          this.asked.delete(id);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, work));
  }
}

/** Kept for all pages. */
export const firstPrompts = new FirstPrompts(async (id) => {
  const { turns } = await get<{ turns: Turn[] }>(`/admin/sessions/${encodeURIComponent(id)}/turns?before=2&limit=1`);
  return turns[0]?.prompt;
});

/** The title of a session; empty if it has no words for itself and no prompt, or none that is known yet. */
export const titleFor = (session: Titled): string => titleOf(session.meta) || (firstPrompts.known.value.get(session.session_id) ?? '');

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
