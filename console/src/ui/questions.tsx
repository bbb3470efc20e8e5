// The questions of a session that waits, on its card.
import { useState } from 'preact/hooks';

import { get, post, query } from '../api';
import { Ask } from '../events/ask';
import type { AskBlock } from '../events/block';
import type { Json } from '../events/json';
import { Reduction } from '../events/reduce';
import type { LogEvent } from '../shapes';
import { attempt } from './toast';
import { useLoad } from './load';

/** How far back a question is looked for, in events. An agent that asks does little else meanwhile. */
const MAX_EVENTS_BACK = 200;
/** Interval of looking for further questions, in milliseconds. */
const LOOK = 2_000;

const place = (session: string) => `/admin/sessions/${encodeURIComponent(session)}`;

/** Loads the questions of a session that nobody has answered. */
export async function openQuestions(session: string, abort?: AbortSignal): Promise<AskBlock[]> {
  const path = `${place(session)}/events${query({ before: Number.MAX_SAFE_INTEGER, limit: MAX_EVENTS_BACK })}`;
  const { events } = await get<{ events: LogEvent[] }>(path, abort);
  const reduction = new Reduction();
  for (const event of events) reduction.push(event);
  return reduction.questions;
}

export function Questions({ session }: { session: string }) {
  const { value, again } = useLoad(`questions ${session}`, (abort) => openQuestions(session, abort), LOOK);
  const [drafts] = useState(() => new Map<string, Json>());
  const answer = async (request: string, option: string, content?: Json) => {
    await attempt(() => post(`${place(session)}/permissions/${encodeURIComponent(request)}`, { option, content }));
    again();
  };
  if (!value?.length) return null;
  return (
    <div class="questions">
      {value.map((ask) => (
        <Ask key={ask.key} block={ask} version={ask.version} answer={answer} drafts={drafts} />
      ))}
    </div>
  );
}
