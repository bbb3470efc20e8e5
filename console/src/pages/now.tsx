// What happens this moment.
import { useEffect, useRef, useState } from 'preact/hooks';

import { away, callText, get, standing } from '../api';
import { age, count, dollars, many, place } from '../format';
import { now } from '../clock';
import type { Live, Overview, Session } from '../shapes';
import { follow } from '../stream';
import { watchable } from '../terminal/attach';
import { Mini } from '../terminal/mini';
import { dark } from '../theme';
import { firstPrompts, Titles } from '../titles';
import { useLoad } from '../ui/load';
import { Age, Empty, Figure, Page, Problem, Section, Skeleton, State } from '../ui/parts';
import { Questions } from '../ui/questions';

interface Screen {
  id: string;
  cols: number;
  rows: number;
  ansi: string;
}

type Watcher = (screen: Screen) => void;

/** The screens as they come, told to the tiles that show them. */
class Screens {
  private readonly watchers = new Map<string, Set<Watcher>>();
  private readonly last = new Map<string, Screen>();

  tell(screen: Screen): void {
    this.last.set(screen.id, screen);
    for (const watcher of this.watchers.get(screen.id) ?? []) watcher(screen);
  }

  keepOnly(ids: Set<string>): void {
    for (const id of this.last.keys()) if (!ids.has(id)) this.last.delete(id);
  }

  watch(id: string, watcher: Watcher): () => void {
    const set = this.watchers.get(id) ?? new Set();
    set.add(watcher);
    this.watchers.set(id, set);
    const last = this.last.get(id);
    if (last) watcher(last);
    return () => {
      set.delete(watcher);
      if (!set.size) this.watchers.delete(id);
    };
  }
}

/** Kept while one is on other pages. */
const titles = new Titles({
  one: (id) => get<Session>(`/admin/sessions/${encodeURIComponent(id)}`),
  all: async () => (await get<{ sessions: Session[] }>('/admin/sessions')).sessions,
});

export function Now() {
  const [live, setLive] = useState<Live[] | null>(null);
  const screens = useRef(new Screens());
  const overview = useLoad('overview', (abort) => get<Overview>('/admin/overview', abort), 4000);
  const named = titles.known.value;
  const signedIn = standing.value === 'signed-in';
  // Also when an answer has come: meanwhile others may have begun.
  useEffect(() => {
    if (live && signedIn) void titles.want(new Set(live.flatMap((one) => one.session_id ?? [])));
  }, [live, named, signedIn]);
  const prompts = firstPrompts.known.value;
  useEffect(() => {
    const untitled = (live ?? []).flatMap(({ session_id, turns }) => (session_id && named.get(session_id) === '' ? [{ session_id, meta: {}, turn_count: turns }] : []));
    if (signedIn) void firstPrompts.want(untitled);
  }, [live, named, signedIn]);
  const titleOfLive = ({ session_id }: Live) => (session_id ? named.get(session_id) || prompts.get(session_id) : '') ?? '';

  useEffect(() => {
    if (!signedIn) return;
    const stream = follow({
      url: () => '/admin/live/stream',
      on: {
        live: (data) => {
          const value = JSON.parse(data) as { live?: Live[] } | Live[];
          const list = Array.isArray(value) ? value : (value.live ?? []);
          screens.current.keepOnly(new Set(list.map((one) => one.id)));
          setLive(list);
        },
        screen: (data) => screens.current.tell(JSON.parse(data) as Screen),
      },
    });
    return () => stream.close();
  }, [signedIn]);

  const value = overview.value;
  // Those that wait for a person come first.
  const sorted = live?.toSorted((a, b) => Number(b.waiting ?? false) - Number(a.waiting ?? false) || Number(b.busy) - Number(a.busy) || (a.since < b.since ? 1 : -1));
  return (
    <Page
      title="Now"
      lead={value ? <>Hob has kept the fire for {age(value.started_at, now.value) === 'now' ? 'a moment' : age(value.started_at, now.value)}.</> : null}
    >
      {overview.error ? <Problem error={overview.error} again={overview.again} /> : null}
      <div class="now">
        <Figures overview={value} />
        <Section title="Live" aside={live?.length ? many(live.length, 'session') : null}>
          {sorted === undefined ? (
            away.value ? null : (
              <div class="tiles">
                <Skeleton lines={6} tall />
                <Skeleton lines={6} tall />
              </div>
            )
          ) : sorted.length === 0 ? (
            <Empty icon="now" title="Nothing runs" action={<a class="button primary" href="#/sessions?new=1">Start a session</a>}>
              <p>
                Sessions that apps or you begin appear here, each as a small living terminal. From a shell: <code>hob run "why does the build fail?"</code>
              </p>
            </Empty>
          ) : (
            <ul class="tiles">
              {sorted.map((one) => (
                <Tile key={one.id} live={one} title={titleOfLive(one)} screens={screens.current} />
              ))}
            </ul>
          )}
        </Section>
      </div>
    </Page>
  );
}

function Figures({ overview }: { overview: Overview | null }) {
  if (!overview) {
    return (
      <div class="figures">
        <Skeleton lines={1} />
      </div>
    );
  }
  const { sessions, live, pool, turns, memory } = overview;
  const full = live.limit > 0 ? live.used / live.limit : 0;
  return (
    <div class="figures">
      <Figure value={sessions.busy} label={sessions.busy === 1 ? 'session at work' : 'sessions at work'} tone={sessions.busy ? 'ember' : ''} />
      <Figure value={sessions.waiting} label={sessions.waiting === 1 ? 'asks for permission' : 'ask for permission'} tone={sessions.waiting ? 'gold' : ''} />
      <Figure value={turns?.['queued'] ?? 0} label={turns?.['queued'] === 1 ? 'turn waits' : 'turns wait'} tone={turns?.['queued'] ? 'gold' : ''} />
      <div class="figure">
        <span class="figure-value">
          {live.used}
          <small> / {live.limit}</small>
        </span>
        <span class="figure-label">places taken</span>
        <meter class={full >= 1 ? 'full' : ''} min={0} max={1} value={full} aria-label={`${live.used} of ${live.limit} places taken`} />
      </div>
      {pool && pool.busy + pool.idle + pool.warm + pool.seeded + pool.fresh > 0 ? (
        <div class="figure" title={`${pool.busy} at work, ${pool.idle} kept warm`}>
          <span class="figure-value">{pool.busy + pool.idle}</span>
          <span class="figure-label">
            {pool.busy + pool.idle === 1 ? 'process' : 'processes'} for /v1; answers so far: {count(pool.warm)} warm, {count(pool.seeded)} seeded, {count(pool.fresh)} fresh
          </span>
        </div>
      ) : null}
      {turns ? <Figure value={count(turns['finished'])} label={turns['finished'] === 1 ? 'session turn finished' : 'session turns finished'} /> : null}
      {memory ? (
        <Figure
          value={count(memory.turns)}
          label={memory.backlog_files ? `remembered · ${many(memory.backlog_files, 'file')} wait` : 'turns remembered'}
        />
      ) : null}
    </div>
  );
}

const stateOf = (live: Live) => (live.waiting ? 'waiting' : live.busy ? 'running' : 'idle');

function Tile({ live, title, screens }: { live: Live; title: string; screens: Screens }) {
  const asks = live.waiting && live.session_id;
  // A question is answered where it stands; the terminal cannot do more.
  const href = live.session_id ? `#/sessions/${live.session_id}${live.terminal && !asks ? '/terminal' : ''}` : `#/live/${live.id}`;
  return (
    <li class={`tile${live.busy ? ' busy' : ''}${asks ? ' asks' : ''}`}>
      {asks ? (
        <div class="tile-questions">
          <Questions session={asks} />
        </div>
      ) : (
        <div class="tile-screen">{live.terminal ? <Picture live={live} screens={screens} /> : watchable(live) ? <Tail live={live} /> : <p class="no-terminal">No terminal</p>}</div>
      )}
      <a class="tile-foot" href={href} data-item>
        <span class="tile-name">
          <strong>{live.agent}</strong>
          <span>
            <span class="offstage">of </span>
            {live.app === '@owner' ? 'yours' : live.app}
          </span>
          <State word={stateOf(live)} />
        </span>
        <span class="tile-facts">
          <span title={live.cwd}>{title || place(live.cwd)}</span>
          <span>{many(live.turns, 'turn')}</span>
          {live.cost_usd ? <span>{dollars(live.cost_usd)}</span> : live.tokens ? <span>{count(live.tokens)} tokens</span> : null}
          {live.viewers ? <span>{many(live.viewers, 'viewer')}</span> : null}
          <span class="push">
            <Age at={live.since} />
          </span>
        </span>
      </a>
    </li>
  );
}

function Picture({ live, screens }: { live: Live; screens: Screens }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const mini = useRef<Mini | null>(null);
  const isDark = dark.value;
  useEffect(() => {
    const picture = new Mini(canvas.current!);
    mini.current = picture;
    const stop = screens.watch(live.id, (screen) => picture.show(screen.cols, screen.rows, screen.ansi, dark.peek()));
    return () => {
      stop();
      picture.dispose();
    };
  }, [live.id]);
  useEffect(() => mini.current?.recolour(isDark), [isDark]);
  return <canvas ref={canvas} role="img" aria-label={`The screen of ${live.agent}`} />;
}

/** How many lines of a tail are shown whole, and how many are drawn. */
const WHOLE_LINES = 12;
const MAX_LINES = 18;

/** What an agent without a terminal did last. */
function Tail({ live }: { live: Live }) {
  const beat = live.busy ? Math.floor(now.value / 2000) : 0;
  const { value } = useLoad(`${live.id} ${live.last_at} ${live.busy} ${beat}`, (abort) =>
    callText(`/admin/live/${live.id}/screen?format=text`, { signal: abort }),
  );
  const lines = (value ?? '').trimEnd().split('\n').slice(-MAX_LINES);
  return (
    <div class={lines.length > WHOLE_LINES ? 'tail long' : 'tail'} role="group" aria-label={`The last events of ${live.agent}`}>
      {value === null ? <Skeleton lines={4} /> : value.trim() ? lines.map((line, at) => <div key={at}>{line || ' '}</div>) : <em>Nothing has been said yet.</em>}
    </div>
  );
}
