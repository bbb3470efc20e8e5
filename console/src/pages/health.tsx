// Whether all is well, what is set, and who did what.
import { useMemo, useState } from 'preact/hooks';

import { get, query } from '../api';
import type { Audit, Check, Setting } from '../shapes';
import { attempt } from '../ui/toast';
import { useLoad } from '../ui/load';
import { Button, Copy, Empty, Page, Problem, Section, Skeleton, State, When } from '../ui/parts';

const ORDER = { fail: 0, warn: 1, ok: 2 };

export function Health() {
  const health = useLoad('health', (abort) => get<{ checks: Check[]; settings: Setting[] }>('/admin/health', abort), 30_000);
  const checks = (health.value?.checks ?? []).toSorted((a, b) => ORDER[a.status] - ORDER[b.status]);
  const bad = checks.filter((check) => check.status === 'fail').length;
  const warn = checks.filter((check) => check.status === 'warn').length;
  const lead = !health.value ? null : bad ? 'Some checks fail.' : warn ? 'Hob works; some checks have warnings.' : 'All checks pass.';
  return (
    <Page
      title="Health"
      lead={lead}
      actions={
        <Button onClick={health.again} disabled={health.loading}>
          Check again
        </Button>
      }
    >
      {health.error ? <Problem error={health.error} again={health.again} /> : null}
      {!health.value && !health.error ? <Skeleton lines={6} tall /> : null}
      {health.value ? (
        <ul class="checks" aria-label="Checks">
          {checks.map((check, at) => (
            <li key={check.name + at} class={`check ${check.status}`} tabIndex={0} data-item>
              <State word={check.status} label={check.status === 'ok' ? 'well' : check.status === 'warn' ? 'look' : 'wrong'} />
              <div>
                <strong>{check.name}</strong>
                <p>{check.text}</p>
                {check.fix ? (
                  <div class="fix">
                    <span>{check.fix}</span>
                    <Copy text={check.fix} />
                  </div>
                ) : null}
              </div>
            </li>
          ))}
        </ul>
      ) : null}
      {health.value ? <Settings settings={health.value.settings} /> : null}
      <AuditLog />
    </Page>
  );
}

function Settings({ settings }: { settings: Setting[] }) {
  const [text, setText] = useState('');
  const [all, setAll] = useState(false);
  const shown = useMemo(
    () =>
      settings.filter(
        (setting) => (all || text || setting.source !== 'default') && `${setting.key} ${show(setting.value)}`.toLowerCase().includes(text.toLowerCase()),
      ),
    [settings, text, all],
  );
  return (
    <Section title="Settings" aside={`${settings.filter((s) => s.source !== 'default').length} of ${settings.length} are not the default`}>
      <div class="filters">
        <input data-search class="grow" type="search" placeholder="A setting…" aria-label="Filter settings" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <label class="switch">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} />
          <span>defaults too</span>
        </label>
      </div>
      {shown.length ? (
        <div class="table-wrap" tabIndex={0}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Setting</th>
                <th scope="col">Value</th>
                <th scope="col">From</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((setting) => (
                <tr key={setting.key}>
                  <td class="mono">{setting.key}</td>
                  <td class="mono">{show(setting.value)}</td>
                  <td class="soft">{setting.source}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p class="soft">{text ? 'No setting like that.' : 'Everything is as it comes.'}</p>
      )}
    </Section>
  );
}

function show(value: unknown): string {
  if (typeof value === 'string') return value || '""';
  return JSON.stringify(value) ?? '';
}

function AuditLog() {
  const first = useLoad('audit', (abort) => get<{ entries: Audit[] }>('/admin/audit?limit=50', abort), 15_000);
  const [older, setOlder] = useState<Audit[]>([]);
  const [end, setEnd] = useState(false);
  const newest = first.value?.entries ?? [];
  const known = new Set(newest.map((entry) => entry.id));
  const entries = [...newest, ...older.filter((entry) => !known.has(entry.id))];
  return (
    <Section title="Audit" aside="what was done with the admin’s rights">
      {first.error ? <Problem error={first.error} again={first.again} /> : null}
      {!first.value && !first.error ? <Skeleton lines={4} tall /> : null}
      {first.value && !entries.length ? <Empty icon="clock" title="Nothing yet" /> : null}
      {entries.length ? (
        <div class="table-wrap" tabIndex={0}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">What</th>
                <th scope="col">On</th>
                <th scope="col">Detail</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((entry) => (
                <tr key={entry.id} class={entry.action === 'login_failed' ? 'bad' : ''}>
                  <td class="soft nowrap">
                    <When at={entry.at} />
                  </td>
                  <td class="nowrap">{entry.action.replaceAll('_', ' ')}</td>
                  <td class="mono cut">{entry.target ?? ''}</td>
                  <td class="soft cut">{detail(entry.detail)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {entries.length >= 50 && !end ? (
        <Button
          look="quiet"
          onClick={() =>
            attempt(async () => {
              const before = entries.at(-1)!.id;
              const answer = await get<{ entries: Audit[] }>(`/admin/audit${query({ limit: 100, before })}`);
              setOlder([...older, ...answer.entries]);
              if (answer.entries.length < 100) setEnd(true);
            })
          }
        >
          Earlier ones
        </Button>
      ) : null}
    </Section>
  );
}

function detail(value: unknown): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  if (typeof value === 'object') {
    return Object.entries(value)
      .map(([key, inner]) => `${key} ${typeof inner === 'string' ? inner : JSON.stringify(inner)}`)
      .join(', ');
  }
  return String(value);
}
