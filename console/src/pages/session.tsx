// One session: what was asked and said, its terminal, and the ways to steer it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import { ApiError, AwayError, fresh, get, post, query, remove } from '../api';
import { EventLog } from '../events/log';
import { costOf, count, many, place, shortId, tokensOf } from '../format';
import { go } from '../router';
import type { Live, Session, Turn } from '../shapes';
import { titleOf } from '../titles';
import { confirm } from '../ui/dialog';
import { attempt, say } from '../ui/toast';
import { useLoad } from '../ui/load';
import { Age, Button, Empty, Problem, Skeleton, State } from '../ui/parts';
import { Icon } from '../ui/icons';
import { Composer } from './session/composer';
import { Events } from './session/events';
import { TerminalTab } from './session/terminal';

interface Props {
  id: string;
  tab: string;
  /** A process of the Claude backend, which has no log and perhaps a terminal. */
  backend?: boolean;
}

export function SessionPage({ id, tab, backend = false }: Props) {
  const base = `/admin/sessions/${encodeURIComponent(id)}`;
  const session = useLoad(backend ? '' : base, (abort) => (backend ? Promise.resolve(null) : get<Session>(base, abort)), 5000);
  const live = useLoad(`live ${id}`, (abort) => get<{ live: Live[] }>('/admin/live', abort), 3000);
  const mine = live.value?.live.find((one) => one.id === id || one.session_id === id) ?? null;
  const turns = useTurns(backend ? null : base);
  const log = useLog(backend ? null : base, session.value);

  // The state changes with what the log says, sooner than the next look.
  const latest = log?.latest.value;
  useEffect(() => {
    if (!latest) return;
    session.again();
    if (latest.event === 'turn' || latest.event === 'cancel') turns.refresh();
  }, [latest?.seq]);
  const running = log && log.revision.value >= 0 ? log.turn : null;
  useEffect(() => {
    if (running !== null && !turns.byNumber.has(running)) turns.refresh();
  }, [running]);

  // Who reads far back needs the prompts from there as well.
  const first = log?.blocks.find((block) => block.turn !== null)?.turn ?? null;
  useEffect(() => {
    if (first !== null && turns.byNumber.size && !turns.byNumber.has(first)) turns.older(first);
  }, [first]);

  useEffect(() => {
    document.title = session.value ? `${session.value.agent} · ${shortId(id)} · Hob` : 'Session · Hob';
  }, [session.value?.agent, id]);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (backend || document.querySelector('dialog[open]')) return;
      if (event.key === 'e') go(`/sessions/${id}`);
      if (event.key === 't') go(`/sessions/${id}/terminal`);
      if (event.key === 'i') {
        event.preventDefault();
        document.querySelector<HTMLTextAreaElement>('.composer textarea')?.focus();
      }
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [id, backend]);

  if (session.error instanceof ApiError && session.error.status === 404) {
    return (
      <div class="page">
        <Empty icon="sessions" title="No such session" action={<a class="button" href="#/sessions">All sessions</a>}>
          <p>It may have been deleted: Hob deletes closed sessions after a while.</p>
        </Empty>
      </div>
    );
  }
  const value = session.value;
  const closed = value?.state === 'closed';
  const onTerminal = backend || tab === 'terminal';
  return (
    <div class="session">
      <header class="session-head">
        <a class="crumb" href={backend ? '#/now' : '#/sessions'} aria-label="Back">
          <Icon name="back" />
        </a>
        {value || mine ? (
          <div class="session-name">
            <h1>
              {titleOf(value?.meta) || (value?.agent ?? mine?.agent)}{' '}
              <span class="soft">
                {titleOf(value?.meta) ? `${value?.agent}, ` : ''}
                {(value?.app ?? mine?.app) === '@owner' ? 'yours' : (value?.app ?? mine?.app)}
              </span>
            </h1>
            <div class="session-facts">
              <State word={value?.waiting || mine?.waiting ? 'waiting' : (value?.state ?? (mine?.busy ? 'running' : 'idle'))} />
              <span title={value?.cwd ?? mine?.cwd}>{place(value?.cwd ?? mine?.cwd)}</span>
              {value?.model ? <span>{value.model}</span> : null}
              <span>{many(value?.turn_count ?? mine?.turns ?? 0, 'turn')}</span>
              {value ? <Usage session={value} /> : null}
              <span class="wide-only">
                <Age at={value?.created_at ?? mine?.since} after=" old" />
              </span>
              <button type="button" class="id mono wide-only" title="Copy the session’s name" onClick={() => void navigator.clipboard?.writeText(id).then(() => say('Copied.'))}>
                {shortId(id)}
              </button>
            </div>
          </div>
        ) : backend && live.value ? (
          <div class="session-name">
            <h1>No longer live</h1>
          </div>
        ) : (
          <Skeleton lines={2} />
        )}
        {value && !closed ? (
          <div class="actions">
            {value.state === 'running' ? (
              <Button icon="stop" look="danger" onClick={() => attempt(async () => { await post(`${base}/cancel`); session.again(); })}>
                Cancel turn
              </Button>
            ) : null}
            <Button
              onClick={() =>
                confirm({
                  title: 'Close this session?',
                  words: <p>The running turn is cancelled and the agent ends. The log stays for a while. The session takes no more prompts.</p>,
                  yes: 'Close it',
                  danger: true,
                  act: async () => {
                    await remove(base);
                    session.again();
                    say('Closed.');
                  },
                })
              }
            >
              Close
            </Button>
          </div>
        ) : null}
      </header>
      {backend ? null : (
        <div class="tabbar" role="tablist" aria-label="Views">
          <a role="tab" aria-selected={!onTerminal} class={onTerminal ? '' : 'here'} href={`#/sessions/${id}`}>
            Events
          </a>
          {onTerminal || !mine || mine.terminal || closed ? (
            <a role="tab" aria-selected={onTerminal} class={onTerminal ? 'here' : ''} href={`#/sessions/${id}/terminal`}>
              Terminal
            </a>
          ) : null}
        </div>
      )}
      {session.error ? <Problem error={session.error} again={session.again} /> : null}
      {onTerminal ? (
        <TerminalTab live={mine} loading={live.value === null && !live.error} closed={closed} backend={backend} />
      ) : (
        <>
          {log ? (
            <Events
              log={log}
              turns={turns.byNumber}
              working={value?.state === 'running' && !value.waiting}
              terminal={mine?.terminal ? { id: mine.id, agent: mine.agent, href: `#/sessions/${id}/terminal` } : null}
              answer={(request, option, content) => attempt(() => post(`${base}/permissions/${encodeURIComponent(request)}`, { option, content }))}
            />
          ) : (
            <div class="events-loading">
              <Skeleton lines={8} tall />
            </div>
          )}
          {closed ? (
            <p class="closed-bar">This session is closed.</p>
          ) : (
            <Composer
              busy={value?.state === 'running'}
              onAsk={(prompt) =>
                attempt(async () => {
                  await post(`${base}/turn`, { prompt });
                  void log?.jumpToEnd();
                  turns.refresh();
                  session.again();
                })
              }
            />
          )}
        </>
      )}
    </div>
  );
}

function Usage({ session }: { session: Session }) {
  const { input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd } = session.usage;
  const cost = costOf(session.usage);
  const tokens = tokensOf(session.usage);
  return (
    <>
      {tokens ? <span title={`${input_tokens} in, ${output_tokens} out, ${cached_read_tokens} read from the cache, ${cached_write_tokens} written`}>{count(tokens)} tokens</span> : null}
      {cost ? <span title={cost_usd ? undefined : 'The agent reports tokens only'}>{cost}</span> : null}
    </>
  );
}

/** The log of this session, from when it is known where it ends until one leaves. */
function useLog(base: string | null, session: Session | null): EventLog | null {
  const log = useMemo(() => (base ? new EventLog(base) : null), [base]);
  const known = session !== null;
  const started = useRef<EventLog | null>(null);
  useEffect(() => {
    if (!log || !session || started.current === log) return;
    started.current = log;
    void log.start(session.last_event_id, session.state !== 'closed');
  }, [log, known]);
  // A log that the server's absence kept from loading is loaded when the server is back.
  const since = fresh.value;
  useEffect(() => {
    if (log && session && log.failed.value instanceof AwayError) void log.start(session.last_event_id, session.state !== 'closed');
  }, [log, since]);
  useEffect(() => () => log?.stop(), [log]);
  return known ? log : null;
}

/** What was asked: the prompts are not in the log. */
function useTurns(base: string | null): { byNumber: Map<number, Turn>; refresh: () => void; older: (turn: number) => void } {
  const [byNumber, setByNumber] = useState<Map<number, Turn>>(new Map());
  const waiting = useRef<number | undefined>(undefined);
  const load = async (before?: number) => {
    if (!base) return;
    try {
      const answer = await get<{ turns: Turn[] }>(`${base}/turns${query({ before, limit: 100 })}`);
      setByNumber((former) => {
        const next = new Map(former);
        for (const turn of answer.turns) next.set(turn.turn_index, turn);
        return next;
      });
    } catch {
      // Without them the log is still there.
    }
  };
  const refresh = () => {
    if (waiting.current !== undefined) return;
    waiting.current = window.setTimeout(() => {
      waiting.current = undefined;
      void load();
    }, 60);
  };
  useEffect(() => {
    void load();
    return () => clearTimeout(waiting.current);
  }, [base]);
  return { byNumber, refresh, older: (turn) => void load(turn + 1) };
}
