// Who may ask: apps, their tokens, what they use.
import { useMemo, useState } from 'preact/hooks';

import { get, post, query, remove } from '../api';
import { count, dollars, many, span } from '../format';
import { go, replace, route } from '../router';
import type { App, UsageDay } from '../shapes';
import { Bars, lastDays, weeks } from '../ui/chart';
import { confirm, Dialog } from '../ui/dialog';
import { attempt, say } from '../ui/toast';
import { useLoad } from '../ui/load';
import { Button, Copy, Empty, Page, Problem, Section, Skeleton, When } from '../ui/parts';

/** The time ranges of the charts, in days. The longest is shown by week. */
const RANGES = [7, 30, 90, 365];
const WEEKLY = 365;

export function Apps() {
  const apps = useLoad('apps', (abort) => get<{ apps: App[] }>('/admin/apps', abort), 10_000);
  const limits = useLoad('limits', (abort) => get<Record<string, unknown>>('/admin/limits', abort));
  const chosen = route.value.values.get('app') ?? '';
  const creating = route.value.values.get('new') !== null;
  const choose = (app: string) => replace(app ? `/apps?app=${encodeURIComponent(app)}` : '/apps');
  return (
    <Page
      title="Apps"
      lead="Each caller is an app with its own token. An app sees only its own data."
      actions={
        <Button icon="plus" look="primary" onClick={() => go('/apps?new=1')}>
          New app
        </Button>
      }
    >
      {apps.error ? <Problem error={apps.error} again={apps.again} /> : null}
      {!apps.value && !apps.error ? <Skeleton lines={4} tall /> : null}
      {apps.value && !apps.value.apps.length ? (
        <Empty icon="apps" title="No app yet" action={<Button look="primary" onClick={() => go('/apps?new=1')}>Create the first app</Button>}>
          <p>A program sends its app’s token with each request. From a shell: <code>hob app create NAME</code>.</p>
        </Empty>
      ) : null}
      {apps.value?.apps.length ? (
        <ul class="list" aria-label="Apps">
          {apps.value.apps.map((app) => (
            <li key={app.app} class="list-row app-row">
              <button type="button" data-item class="list-main as-link" onClick={() => choose(chosen === app.app ? '' : app.app)} aria-pressed={chosen === app.app}>
                <strong>{app.app}</strong>
                <small>
                  since <When at={app.created_at} />
                </small>
              </button>
              <span class="list-facts">
                <span>{many(app.sessions_open ?? 0, 'open session')}</span>
                <span>{many(app.turns_today ?? 0, 'turn')} today</span>
                <span>{count(app.tokens_today)} tokens</span>
                {app.cost_today || !app.tokens_today ? <span>{dollars(app.cost_today)}</span> : <span title="The agent reports tokens only">no cost reported</span>}
              </span>
              <Button
                look="quiet"
                onClick={() =>
                  confirm({
                    title: `Revoke ${app.app}?`,
                    words: <p>Its token stops working at once. Its sessions, files and memory are removed. <strong>You cannot undo this.</strong></p>,
                    yes: 'Revoke',
                    danger: true,
                    act: async () => {
                      await remove(`/admin/apps/${encodeURIComponent(app.app)}`);
                      say(`${app.app} is revoked.`);
                      if (chosen === app.app) choose('');
                      apps.again();
                    },
                  })
                }
              >
                Revoke
              </Button>
            </li>
          ))}
        </ul>
      ) : null}
      <Usage app={chosen} onAll={() => choose('')} />
      <Limits value={limits.value} />
      {creating ? <NewApp onMade={apps.again} /> : null}
    </Page>
  );
}

interface Sum {
  day: string;
  turns: number;
  failed: number;
  tokens: number;
  cost: number;
}

function Usage({ app, onAll }: { app: string; onAll: () => void }) {
  const [range, setRange] = useState(30);
  const path = `/admin/usage${query({ days: range, app })}`;
  const usage = useLoad(path, (abort) => get<{ days: UsageDay[] }>(path, abort), 30_000);
  const weekly = range === WEEKLY;
  const bars = useMemo(() => {
    const sums = new Map(lastDays(range, new Date()).map((day): [string, Sum] => [day, { day, turns: 0, failed: 0, tokens: 0, cost: 0 }]));
    const add = (sum: Sum, more: Omit<Sum, 'day'>) => {
      sum.turns += more.turns;
      sum.failed += more.failed;
      sum.tokens += more.tokens;
      sum.cost += more.cost;
      return sum;
    };
    for (const entry of usage.value?.days ?? []) {
      const sum = sums.get(entry.day);
      if (sum) add(sum, { ...entry, tokens: entry.input_tokens + entry.output_tokens, cost: entry.cost_usd });
    }
    const days = [...sums.values()];
    return weekly ? weeks(days).map((week) => week.slice(1).reduce(add, { ...week[0]! })) : days;
  }, [usage.value, range]);
  const within = weekly ? 'in a year' : `in ${range} days`;
  const total = (what: 'tokens' | 'cost') => bars.reduce((sum, bar) => sum + bar[what], 0);
  return (
    <Section title={app ? `Usage of ${app}` : 'Usage'} aside={app ? <Button look="quiet" onClick={onAll}>All apps</Button> : 'of all apps'}>
      <div class="ranges" role="group" aria-label="Time range">
        {RANGES.map((days) => (
          <button key={days} type="button" class={days === range ? 'range here' : 'range'} aria-pressed={days === range} onClick={() => setRange(days)}>
            {days === WEEKLY ? '1 year' : `${days} days`}
          </button>
        ))}
      </div>
      {usage.error ? (
        <Problem error={usage.error} again={usage.again} />
      ) : !usage.value ? (
        <Skeleton lines={4} tall />
      ) : (
        <>
          <div class="charts">
            <Bars label="Turns" span={within} weekly={weekly} least={4} format={count} bars={bars.map((d) => ({ day: d.day, value: d.turns, bad: d.failed }))} />
            <Bars label="Tokens" span={within} weekly={weekly} least={1000} format={count} bars={bars.map((d) => ({ day: d.day, value: d.tokens }))} />
            <Bars label="Cost" span={within} weekly={weekly} least={1} format={dollars} bars={bars.map((d) => ({ day: d.day, value: d.cost }))} />
          </div>
          {total('tokens') && !total('cost') ? <p class="soft charts-note">No agent has reported a cost. Codex and Gemini CLI report tokens only; limit those with limits.app_tokens_per_day.</p> : null}
        </>
      )}
    </Section>
  );
}

/** The limits, whatever the server calls them, in a table. */
function Limits({ value }: { value: Record<string, unknown> | null }) {
  if (!value) return null;
  const rows = flatten(value).filter(([key]) => key !== 'ok');
  if (!rows.length) return null;
  return (
    <Section title="Limits" aside={<span>set in <code>config.toml</code></span>}>
      <dl class="limits">
        {rows.map(([key, limit]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{inWords(key, limit)}</dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}

function inWords(key: string, limit: string): string {
  const number = Number(limit);
  if (key.startsWith('limits.') && number === 0) return 'none';
  if (key.endsWith('_secs') && number > 0) return span(number * 1000);
  if (key.includes('cost_usd')) return dollars(number);
  return Number.isFinite(number) && number > 999 ? count(number) : limit;
}

function flatten(value: unknown, prefix = ''): [string, string][] {
  if (Array.isArray(value)) return [[prefix, value.length ? value.join(', ') : 'none']];
  if (typeof value === 'object' && value !== null) {
    return Object.entries(value).flatMap(([key, inner]) => flatten(inner, prefix ? `${prefix}.${key}` : key));
  }
  return [[prefix, value === null ? 'none' : String(value)]];
}

/** The token is in this dialog alone, and gone with it. */
function NewApp({ onMade }: { onMade: () => void }) {
  const [name, setName] = useState('');
  const [token, setToken] = useState<string | null>(null);
  const close = () => replace('/apps');
  if (token !== null) {
    return (
      <Dialog title={`${name} is made`} onClose={close} wide>
        <p>This is the token. It is shown only once; Hob keeps only its hash.</p>
        <div class="token">
          <code data-token>{token}</code>
          <Copy text={token} />
        </div>
        <pre class="example" tabIndex={0}>{`curl -s ${location.origin}/run \\\n  -H "Authorization: Bearer $TOKEN" \\\n  -d '{"prompt": "say hello"}'`}</pre>
        <div class="dialog-actions">
          <Button look="primary" onClick={close}>
            I have it
          </Button>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="New app" onClose={close}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          void attempt(async () => {
            const made = await post<{ token: string }>('/admin/apps', { app: name });
            setToken(made.token);
            onMade();
          });
        }}
      >
        <label>
          Name <small>letters, digits, dots and dashes</small>
          <input autofocus type="text" required pattern="[A-Za-z0-9][A-Za-z0-9._\-]{0,63}" spellcheck={false} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <div class="dialog-actions">
          <Button look="quiet" onClick={close}>
            Leave it
          </Button>
          <button type="submit" class="button primary" disabled={!name}>
            Make it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
