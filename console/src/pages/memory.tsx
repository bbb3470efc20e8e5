// What was said: search, look around, correct, forget.
import { useEffect, useRef, useState } from 'preact/hooks';

import { get, query } from '../api';
import { count, many, moment, place } from '../format';
import { terms } from '../highlight';
import { replace, route } from '../router';
import type { App, Facets, Found, Hit, MemoryStats } from '../shapes';
import { useLoad } from '../ui/load';
import { Empty, Page, Problem, Skeleton } from '../ui/parts';
import { Icon } from '../ui/icons';
import { now } from '../clock';
import { Detail } from './memory/detail';
import { groups } from './memory/groups';
import { Group } from './memory/hits';

/** How many hits are shown at first, and how many the server gives at most. */
const FIRST = 30;
const MOST = 200;

const FILTERS = ['q', 'app', 'project', 'client', 'since', 'until'] as const;

export function Memory() {
  const values = route.value.values;
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, values.get(name) ?? ''])) as Record<(typeof FILTERS)[number], string>;
  const [text, setText] = useState(wanted.q);
  const typed = useRef(wanted.q);
  const timer = useRef<number | undefined>(undefined);
  const chosen = values.get('record');
  const [limit, setLimit] = useState(FIRST);
  const [round, setRound] = useState(0);

  const change = (changes: Record<string, string | null>) => {
    const next = new URLSearchParams(route.value.values);
    for (const [name, value] of Object.entries(changes)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const rest = next.toString();
    replace(`/memory${rest ? `?${rest}` : ''}`);
  };
  // The address changes with what is typed, a moment later, so that it can be shared and gone back to.
  const type = (value: string) => {
    setText(value);
    typed.current = value;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => change({ q: value, record: null }), 110);
  };
  // Another question begins with its best hits.
  const question = FILTERS.map((name) => wanted[name]).join('\n');
  useEffect(() => setLimit(FIRST), [question]);
  useEffect(() => {
    if (document.activeElement?.id === 'memory-q') return;
    setText(wanted.q);
    typed.current = wanted.q;
  }, [wanted.q]);

  const parameters = {
    q: wanted.q,
    app: wanted.app,
    project: wanted.project,
    client: wanted.client,
    since: wanted.since ? `${wanted.since}T00:00:00Z` : '',
    until: wanted.until ? `${wanted.until}T23:59:59Z` : '',
    limit,
  };
  const asked = `/admin/memory/search${query(parameters)}`;
  const whose = query({ app: wanted.app });
  const found = useLoad(`${asked} ${round}`, async (abort) => ({ ...(await get<Found>(asked, abort)), app: wanted.app }));
  const facets = useLoad(`facets ${whose} ${round}`, (abort) => get<Facets>(`/admin/memory/facets${whose}`, abort));
  const stats = useLoad(`stats ${whose} ${round}`, (abort) => get<MemoryStats>(`/admin/memory/stats${whose}`, abort), 10_000);
  const apps = useLoad('apps', (abort) => get<{ apps: App[] }>('/admin/apps', abort));

  const words = terms(wanted.q);
  // Hits of another memory do not stay on the page while this one is searched.
  const answer = found.value?.app === wanted.app ? found.value : null;
  const hits = answer?.hits ?? [];
  // What was chosen stays open, also when what is typed next no longer finds it.
  const last = useRef<Hit | null>(null);
  const hit = hits.find((one) => one.record_id === chosen) ?? (last.current?.record_id === chosen ? last.current : null);
  last.current = hit;
  const choose = (one: Hit) => {
    clearTimeout(timer.current);
    last.current = one;
    change({ q: typed.current, record: one.record_id });
  };
  return (
    <Page title="Memory" lead={<StatsLine stats={stats.value} />}>
      <div class="memory-search">
        <label class="searchbox">
          <Icon name="search" />
          <input
            id="memory-q"
            data-search
            type="search"
            value={text}
            placeholder="What was said about…"
            aria-label="Search the memory"
            spellcheck={false}
            onInput={(event) => type(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'ArrowDown') {
                event.preventDefault();
                document.querySelector<HTMLElement>('[data-item]')?.focus();
              }
            }}
          />
          {answer && wanted.q ? <small aria-hidden="true">{Math.max(1, Math.round(answer.took_ms))} ms</small> : null}
        </label>
        <div class="filters">
          <Whose apps={apps.value?.apps ?? []} chosen={wanted.app} onChoose={(app) => change({ app, project: null, client: null, record: null })} />
          <label>
            <span>Project</span>
            <select value={wanted.project} onChange={(e) => change({ project: e.currentTarget.value })}>
              <option value="">all</option>
              {withChosen(facets.value?.projects ?? [], wanted.project).map((project) => (
                <option key={project.name} value={project.name}>
                  {place(project.name)} ({count(project.turns)})
                </option>
              ))}
            </select>
          </label>
          <label>
            <span>Client</span>
            <select value={wanted.client} onChange={(e) => change({ client: e.currentTarget.value })}>
              <option value="">all</option>
              {withChosen(facets.value?.clients ?? [], wanted.client).map((client) => (
                <option key={client.name} value={client.name}>
                  {client.name} ({count(client.turns)})
                </option>
              ))}
            </select>
          </label>
          <label>
            <span>From</span>
            <input type="date" value={wanted.since} max={wanted.until || undefined} onChange={(e) => change({ since: e.currentTarget.value })} />
          </label>
          <label>
            <span>Until</span>
            <input type="date" value={wanted.until} min={wanted.since || undefined} onChange={(e) => change({ until: e.currentTarget.value })} />
          </label>
          {wanted.project || wanted.client || wanted.since || wanted.until ? (
            <button type="button" class="button quiet" onClick={() => change({ project: null, client: null, since: null, until: null })}>
              Clear
            </button>
          ) : null}
        </div>
      </div>
      <div class={hit ? 'memory-columns chosen' : 'memory-columns'}>
        <div class="hits" aria-busy={found.loading}>
          {found.error ? <Problem error={found.error} again={found.again} /> : null}
          {!answer && !found.error ? <Skeleton lines={7} tall /> : null}
          {answer && !hits.length ? (
            <Empty icon="memory" title={wanted.q ? 'No hits' : 'Nothing is remembered yet'}>
              {wanted.q ? (
                <p>Try fewer or other words, or another project.</p>
              ) : wanted.app ? (
                <p>Turns of {wanted.app} are remembered when they end.</p>
              ) : (
                <p>
                  <code>hob setup</code> remembers the sessions of your coding agents, <code>hob import</code> those of the past.
                </p>
              )}
            </Empty>
          ) : null}
          {answer && hits.length ? (
            <p class="hits-head">
              {wanted.q ? many(hits.length, 'hit') : 'The newest turns'}
              {wanted.app ? ` in the memory of ${wanted.app}` : ''}
              {answer.omitted ? `, ${count(answer.omitted)} more left out` : ''}
              {answer.partial ? ' · the index is still being built' : ''}
            </p>
          ) : null}
          <ul class={found.loading ? 'hit-list stale' : 'hit-list'}>
            {groups(hits).map((group) => (
              <Group key={group[0]!.record_id} hits={group} words={words} chosen={chosen} onChoose={choose} />
            ))}
          </ul>
          {hits.length >= limit && limit < MOST ? (
            <button type="button" class="button quiet" onClick={() => setLimit(Math.min(MOST, limit * 3))}>
              Show more
            </button>
          ) : null}
        </div>
        {hit ? (
          <Detail
            key={hit.record_id}
            hit={hit}
            words={words}
            onClose={() => change({ record: null })}
            onChanged={() => {
              change({ record: null });
              setRound((n) => n + 1);
            }}
          />
        ) : null}
      </div>
    </Page>
  );
}

function withChosen<T extends { name: string; turns: number }>(list: T[], chosen: string): { name: string; turns: number }[] {
  return !chosen || list.some((one) => one.name === chosen) ? list : [...list, { name: chosen, turns: 0 }];
}

/** Chooses the owner's memory or that of an app. Without apps there is no choice. */
function Whose({ apps, chosen, onChoose }: { apps: App[]; chosen: string; onChoose: (app: string) => void }) {
  const names = apps.map((app) => app.app);
  if (chosen && !names.includes(chosen)) names.push(chosen);
  if (!names.length) return null;
  return (
    <label>
      <span>Memory</span>
      <select value={chosen} onChange={(event) => onChoose(event.currentTarget.value)}>
        <option value="">your own</option>
        {names.map((name) => (
          <option key={name} value={name}>
            app {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function StatsLine({ stats }: { stats: MemoryStats | null }) {
  if (!stats) return <> </>;
  const backlog = stats.backlog;
  return (
    <>
      {many(stats.turns, 'turn')} of {many(stats.sessions, 'session')} in {many(stats.projects, 'project')}
      {stats.last_ts ? `, the latest ${moment(stats.last_ts, now.value)}` : ''}.
      {backlog.files ? <span class="chip gold">{many(backlog.files, 'file')} wait to be stored</span> : null}
      {backlog.failed ? <span class="chip brick">{many(backlog.failed, 'file')} set aside</span> : null}
      {stats.health !== 'ok' ? <span class="chip brick">{stats.health}</span> : <span class="chip moss">healthy</span>}
    </>
  );
}
