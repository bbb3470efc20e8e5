// The frame around the pages: who may see them, where one is, what is wrong with the connection.
import { effect, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import { ApiError, away, fresh, get, post, standing } from './api';
import { helpOpen, onKey, paletteOpen } from './keys';
import { notifying, toggleNotifications } from './notifications';
import { Apps } from './pages/apps';
import { Health } from './pages/health';
import { Memory } from './pages/memory';
import { Now } from './pages/now';
import { SessionPage } from './pages/session';
import { Sessions } from './pages/sessions';
import { SignIn } from './pages/signin';
import { route } from './router';
import type { Me } from './shapes';
import { dark, toggle } from './theme';
import { Confirmation } from './ui/dialog';
import { Toasts, attempt } from './ui/toast';
import { Help } from './ui/help';
import { Icon, Logo } from './ui/icons';
import { Palette } from './ui/palette';
import { Button, Empty } from './ui/parts';

export const me = signal<Me | null>(null);

/** Whether a sign-in happened since the page was opened: then the sign-in form covers the page and keeps its state. */
const wasIn = signal(false);

async function look(): Promise<void> {
  try {
    me.value = await get<Me>('/admin/me');
    standing.value = 'signed-in';
  } catch (error) {
    if (error instanceof ApiError && error.status !== 401) standing.value = 'signed-in';
  }
}

effect(() => {
  if (standing.value === 'signed-in') wasIn.value = true;
});

const PLACES = [
  { path: 'now', name: 'Now', icon: 'now', key: 'g n' },
  { path: 'sessions', name: 'Sessions', icon: 'sessions', key: 'g s' },
  { path: 'memory', name: 'Memory', icon: 'memory', key: 'g m' },
  { path: 'apps', name: 'Apps', icon: 'apps', key: 'g a' },
  { path: 'health', name: 'Health', icon: 'health', key: 'g h' },
];

export function App() {
  const since = fresh.value;
  useEffect(() => {
    void look();
  }, [since]);
  // Who goes to another page with the keyboard is there, not still in the menu.
  const [page, detail] = route.value.path;
  useEffect(() => {
    const active = document.activeElement;
    if (active && active !== document.body && !active.closest('nav, .sidebar, .tile, .list')) return;
    document.getElementById('main')?.focus({ preventScroll: true });
  }, [page, detail]);
  useEffect(() => {
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  if (standing.value === 'unknown') {
    return (
      <div class="opening">
        <Logo size={44} />
        {away.value ? <p>Hob does not answer yet. This page continues when it does.</p> : null}
      </div>
    );
  }
  const out = standing.value === 'signed-out';
  if (out && !wasIn.value) return <SignIn again={false} onDone={look} />;
  return (
    <>
      <div class="shell" inert={out}>
        <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>
          Skip to the page
        </a>
        <Sidebar />
        <main id="main" tabIndex={-1}>
          {away.value ? (
            <div class="away" role="status">
              <span class="away-spark" aria-hidden="true" />
              Hob is away. Reconnecting…
            </div>
          ) : null}
          <Place />
        </main>
        <Tabs />
      </div>
      {out ? <SignIn again onDone={look} /> : null}
      {helpOpen.value ? <Help /> : null}
      {paletteOpen.value ? <Palette /> : null}
      <Confirmation />
      <Toasts />
    </>
  );
}

function Place() {
  const [first, second, third] = route.value.path;
  switch (first) {
    case 'now':
      return <Now />;
    case 'sessions':
      return second ? <SessionPage key={second} id={second} tab={third ?? 'events'} /> : <Sessions />;
    case 'live':
      return second ? <SessionPage key={second} id={second} tab="terminal" backend /> : <Now />;
    case 'memory':
      return <Memory />;
    case 'apps':
      return <Apps />;
    case 'health':
      return <Health />;
    default:
      return (
        <div class="page">
          <Empty icon="help" title="No such page" action={<a class="button primary" href="#/now">Start page</a>} />
        </div>
      );
  }
}

function Sidebar() {
  const current = route.value.path[0] === 'live' ? 'now' : route.value.path[0];
  return (
    <aside class="sidebar">
      <a class="brand" href="#/now" aria-label="Hob, now">
        <Logo />
        <span>Hob</span>
      </a>
      <button type="button" class="finder" onClick={() => { paletteOpen.value = true; }}>
        <Icon name="search" size={16} />
        <span>Find</span>
        <kbd>Ctrl K</kbd>
      </button>
      <nav aria-label="Pages">
        {PLACES.map((place) => (
          <a
            key={place.path}
            href={`#/${place.path}`}
            class={current === place.path ? 'here' : ''}
            aria-current={current === place.path ? 'page' : undefined}
            title={`${place.name} (${place.key})`}
          >
            <Icon name={place.icon} />
            <span>{place.name}</span>
          </a>
        ))}
      </nav>
      <div class="sidebar-foot">
        <span class="version">{me.value ? `Hob ${me.value.version}` : ''}</span>
        <Controls />
      </div>
    </aside>
  );
}

function Controls() {
  return (
    <div class="controls">
      <Button
        icon={notifying.value ? 'notify' : 'quiet'}
        look="quiet"
        role="switch"
        aria-checked={notifying.value}
        aria-label="Notifications"
        title={notifying.value ? 'Notifications are on' : 'Notify me when an agent asks or a turn ends'}
        onClick={() => void toggleNotifications()}
      />
      <Button
        icon={dark.value ? 'sun' : 'moon'}
        look="quiet"
        aria-label={dark.value ? 'Light colours' : 'Dark colours'}
        title={dark.value ? 'Light colours' : 'Dark colours'}
        onClick={toggle}
      />
      <Button icon="help" look="quiet" aria-label="Keyboard help" title="Keyboard help (?)" onClick={() => { helpOpen.value = true; }} />
      <Button
        icon="leave"
        look="quiet"
        aria-label="Sign out"
        title="Sign out"
        onClick={() =>
          attempt(async () => {
            await post('/admin/logout');
            wasIn.value = false;
            me.value = null;
            standing.value = 'signed-out';
          })
        }
      />
    </div>
  );
}

/** On a phone: the pages at the thumb, the rest at the top. */
function Tabs() {
  const current = route.value.path[0] === 'live' ? 'now' : route.value.path[0];
  return (
    <>
      <div class="topbar">
        <a class="brand" href="#/now" aria-label="Hob, now">
          <Logo size={24} />
          <span>Hob</span>
        </a>
        <Button icon="search" look="quiet" aria-label="Find" title="Find" onClick={() => { paletteOpen.value = true; }} />
        <Controls />
      </div>
      <nav class="tabs" aria-label="Pages">
        {PLACES.map((place) => (
          <a key={place.path} href={`#/${place.path}`} class={current === place.path ? 'here' : ''} aria-current={current === place.path ? 'page' : undefined}>
            <Icon name={place.icon} size={20} />
            <span>{place.name}</span>
          </a>
        ))}
      </nav>
    </>
  );
}
