// Notifications of the browser: when an agent asks, and when a turn of the owner's own sessions ends.
import { effect, signal } from '@preact/signals';

import { get, standing } from '../api';
import type { AskBlock } from '../events/block';
import { place } from '../format';
import { go } from '../router';
import type { Live } from '../shapes';
import { say } from '../ui/toast';
import { openQuestions } from '../ui/questions';
import { Changes } from './changes';
import workerUrl from './worker?worker&url';

const KEY = 'hob.notifications';
/** The service worker must control no page, so its scope holds none. */
const SCOPE = '/assets/';
/** Number of characters of a command that a notification shows. */
const MAX_BODY_CHARS = 240;

/** Browsers have notifications only for https and for the machine's own address. */
const possible = () => window.isSecureContext && 'Notification' in window && 'serviceWorker' in navigator && 'locks' in navigator;

export const notifying = signal(possible() && localStorage.getItem(KEY) === 'on' && Notification.permission === 'granted');

/** Turns notifications on or off for this browser, and asks the browser's own permission first. */
export async function toggleNotifications(): Promise<void> {
  if (notifying.value) {
    notifying.value = false;
    localStorage.removeItem(KEY);
    return;
  }
  if (!possible()) {
    say('Notifications need https, or a tunnel to this machine’s own address.', true);
    return;
  }
  if ((await Notification.requestPermission()) !== 'granted') {
    say('This browser does not allow notifications for this page.', true);
    return;
  }
  localStorage.setItem(KEY, 'on');
  notifying.value = true;
}

/** Watches while notifications are on and somebody is signed in. Of several tabs, one watches. */
effect(() => {
  if (!notifying.value || standing.value !== 'signed-in') return;
  const end = new AbortController();
  void navigator.locks.request(KEY, { signal: end.signal }, () => watch(end.signal)).catch(() => undefined);
  return () => end.abort();
});

if (possible()) {
  navigator.serviceWorker.addEventListener('message', (event) => {
    const { go: where } = event.data as { go?: unknown };
    if (typeof where === 'string' && where.startsWith('/sessions/')) go(where);
  });
  navigator.serviceWorker.startMessages();
}

async function watch(end: AbortSignal): Promise<void> {
  const registration = await navigator.serviceWorker.register(workerUrl, { scope: SCOPE });
  await active(registration);
  const ticker = new Worker(new URL('./ticker.ts', import.meta.url), { type: 'module' });
  const watcher = new Watcher(registration);
  let looking = false;
  const look = async () => {
    if (looking || end.aborted) return;
    looking = true;
    // The page itself says when Hob is away.
    await watcher.look().catch(() => undefined);
    looking = false;
  };
  ticker.onmessage = () => void look();
  void look();
  await new Promise((resolve) => end.addEventListener('abort', resolve, { once: true }));
  ticker.terminate();
}

/** Waits until the worker can show something. `navigator.serviceWorker.ready` waits for one that controls this page. */
async function active(registration: ServiceWorkerRegistration): Promise<void> {
  const worker = registration.installing ?? registration.waiting;
  if (registration.active || !worker) return;
  await new Promise<void>((resolve) => {
    worker.addEventListener('statechange', () => {
      if (worker.state === 'activated' || worker.state === 'redundant') resolve();
    });
  });
}

class Watcher {
  private readonly changes = new Changes();
  /** Questions that were notified of or seen, by tag. */
  private known = new Set<string>();

  constructor(private readonly registration: ServiceWorkerRegistration) {}

  async look(): Promise<void> {
    const { live } = await get<{ live: Live[] }>('/admin/live');
    const open = new Set<string>();
    for (const change of this.changes.next(live)) {
      if (change.kind === 'done') await this.tellDone(change.live);
      else await this.tellQuestions(change.live, open);
    }
    // What was answered elsewhere is no news any more.
    for (const shown of await this.registration.getNotifications()) {
      if (shown.tag.startsWith('ask ') && !open.has(shown.tag)) shown.close();
    }
    this.known = open;
  }

  private async tellQuestions(live: Live, open: Set<string>): Promise<void> {
    const session = live.session_id!;
    for (const ask of await openQuestions(session)) {
      const tag = `ask ${session} ${ask.key}`;
      open.add(tag);
      if (!this.known.has(tag) && !isLookedAt()) await this.ask(live, ask, tag);
    }
  }

  private async ask(live: Live, ask: AskBlock, tag: string): Promise<void> {
    const option = (kind: string) => (ask.form ? undefined : ask.options.find((one) => one.kind === kind)?.option);
    const [allow, deny] = [option('allow_once'), option('reject_once')];
    const actions = [...(allow ? [{ action: 'allow', title: 'Allow' }] : []), ...(deny ? [{ action: 'deny', title: 'Deny' }] : [])];
    const about = ask.detail?.command || ask.detail?.edits.map((edit) => edit.path).join('\n') || place(live.cwd);
    const options = {
      tag,
      body: about.slice(0, MAX_BODY_CHARS),
      requireInteraction: true,
      data: { session: live.session_id, request: ask.request, allow, deny },
      actions,
    };
    await this.registration.showNotification(`${live.agent} asks: ${ask.title || 'may it go on?'}`, options);
  }

  private async tellDone(live: Live): Promise<void> {
    if (isLookedAt()) return;
    const options = { tag: `done ${live.id}`, body: place(live.cwd), data: { session: live.session_id } };
    await this.registration.showNotification(`${live.agent} has finished its turn`, options);
  }
}

/** Whether a person has the console in front of them. */
const isLookedAt = () => document.visibilityState === 'visible' && document.hasFocus();
