// All sessions, and the way to a new one.
import { useEffect, useMemo, useState } from 'preact/hooks';

import { get, post } from '../api';
import { count, dollars, many, place, shortId, tokensOf } from '../format';
import { go, replace, route } from '../router';
import type { Me, Session } from '../shapes';
import { firstPrompts, titleFor } from '../titles';
import { Dialog } from '../ui/dialog';
import { attempt } from '../ui/toast';
import { useLoad } from '../ui/load';
import { Age, Button, Empty, Page, Problem, Skeleton, State } from '../ui/parts';
import { Questions } from '../ui/questions';

export function Sessions() {
  const { value, error, again } = useLoad('sessions', (abort) => get<{ sessions: Session[] }>('/admin/sessions', abort), 3000);
  const [text, setText] = useState('');
  const [closed, setClosed] = useState(false);
  const prompts = firstPrompts.known.value;
  const creating = route.value.values.get('new') !== null;
  const shown = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = (value?.sessions ?? []).filter((session) => closed || session.state !== 'closed');
    const found = all.filter((session) => {
      const where = `${titleFor(session)} ${session.agent} ${session.app} ${session.session_id} ${session.cwd} ${session.waiting ? 'waiting' : session.state} ${JSON.stringify(session.meta)}`.toLowerCase();
      return words.every((word) => where.includes(word));
    });
    const last = (session: Session) => session.last_turn_at ?? session.created_at;
    // Those that wait for a person come first.
    const waits = (session: Session) => Number(session.waiting ?? false);
    return found.toSorted((a, b) => waits(b) - waits(a) || (last(a) < last(b) ? 1 : -1)).slice(0, 300);
  }, [value, text, closed, prompts]);
  useEffect(() => void firstPrompts.want(shown), [shown]);
  return (
    <Page
      title="Sessions"
      lead={value ? `${many(value.sessions.filter((s) => s.state !== 'closed').length, 'open session')}, ${value.sessions.filter((s) => s.state === 'closed').length} closed.` : null}
      actions={
        <Button icon="plus" look="primary" onClick={() => go('/sessions?new=1')}>
          New session
        </Button>
      }
    >
      <div class="filters">
        <input data-search class="grow" type="search" placeholder="Agent, app, folder, meta…" aria-label="Filter sessions" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        <label class="switch">
          <input type="checkbox" checked={closed} onChange={(e) => setClosed(e.currentTarget.checked)} />
          <span>closed ones too</span>
        </label>
      </div>
      {error ? <Problem error={error} again={again} /> : null}
      {!value && !error ? <Skeleton lines={6} tall /> : null}
      {value && !shown.length ? (
        <Empty icon="sessions" title={text ? 'No match' : 'No open session'}>
          <p>{text ? 'No session matches these words.' : 'Apps create sessions over HTTP. You create them here or with hob run.'}</p>
        </Empty>
      ) : null}
      {shown.length ? (
        <ul class="list" aria-label="Sessions">
          {shown.map((session) => (
            <li key={session.session_id}>
              <a class="list-row session-row" data-item href={`#/sessions/${session.session_id}`}>
                <State word={session.waiting ? 'waiting' : session.state} />
                <span class="list-main">
                  <strong>{titleFor(session) || session.agent}</strong> <span class="soft">{session.app === '@owner' ? 'yours' : session.app}</span>
                  <small>{titleFor(session) ? `${session.agent} in ${place(session.cwd)}` : place(session.cwd)}</small>
                </span>
                <span class="list-facts">
                  <span>{many(session.turn_count, 'turn')}</span>
                  <span>{count(tokensOf(session.usage))} tokens</span>
                  {session.usage.cost_usd ? <span>{dollars(session.usage.cost_usd)}</span> : null}
                  <span class="wide-only mono">{shortId(session.session_id)}</span>
                  <span>
                    <Age at={session.last_turn_at ?? session.created_at} after=" ago" />
                  </span>
                </span>
              </a>
              {session.waiting ? <Questions session={session.session_id} /> : null}
            </li>
          ))}
        </ul>
      ) : null}
      {creating ? <NewSession /> : null}
    </Page>
  );
}

function NewSession() {
  const { value } = useLoad('agents', (abort) => get<Me>('/admin/me', abort));
  const [busy, setBusy] = useState(false);
  const agents = value?.agents ?? [];
  const ready = agents.filter((agent) => agent.installed !== false);
  const preferred = (ready.find((agent) => agent.name === value?.default_agent) ?? ready[0])?.name;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? '').trim();
    setBusy(true);
    await attempt(async () => {
      const body: Record<string, unknown> = { agent: text('agent'), permissions: text('permissions') };
      for (const name of ['cwd', 'model']) if (text(name)) body[name] = text(name);
      const made = await post<{ session_id: string }>('/admin/sessions', body);
      if (text('prompt')) await post(`/admin/sessions/${made.session_id}/turn`, { prompt: text('prompt') });
      go(`/sessions/${made.session_id}`);
    });
    setBusy(false);
  };
  return (
    <Dialog title="New session" onClose={() => replace('/sessions')} wide>
      <form class="form" onSubmit={submit}>
        <div class="form-row">
          <label>
            Agent
            <select name="agent" required>
              {agents.map((agent) => (
                <option key={agent.name} value={agent.name} disabled={agent.installed === false} selected={agent.name === preferred}>
                  {agent.name}
                  {agent.installed === false ? ' (not installed)' : ''}
                </option>
              ))}
            </select>
          </label>
          <label>
            When it asks for permission
            <select name="permissions">
              <option value="ask">ask me</option>
              <option value="deny">say no</option>
              <option value="allow">say yes</option>
            </select>
          </label>
        </div>
        <div class="form-row">
          <label>
            Folder <small>empty: one of its own</small>
            <input name="cwd" type="text" spellcheck={false} placeholder="/home/…" />
          </label>
          <label>
            Model <small>the agent's own name for it</small>
            <input name="model" type="text" spellcheck={false} />
          </label>
        </div>
        <label>
          First words <small>if you like</small>
          <textarea name="prompt" rows={4} placeholder="Why does the build fail?" />
        </label>
        <div class="dialog-actions">
          <Button look="quiet" onClick={() => replace('/sessions')}>
            Leave it
          </Button>
          <button type="submit" class="button primary" disabled={busy || !agents.length}>
            {busy ? 'Starting…' : 'Start'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
