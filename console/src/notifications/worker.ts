// The service worker: what a click on a notification does. It serves no page, and nothing reaches a page through it.

interface Data {
  session: string;
  /** The question, with the options that its buttons stand for. */
  request?: string;
  allow?: string;
  deny?: string;
}

/** What is used of the worker's own scope: the compiler knows only that of pages. */
interface Page {
  focus(): Promise<unknown>;
  postMessage(message: unknown): void;
}
interface Click extends Event {
  action: string;
  notification: { data: Data; close(): void };
  waitUntil(work: Promise<unknown>): void;
}
interface Scope {
  clients: { matchAll(options: object): Promise<Page[]>; openWindow(url: string): Promise<unknown> };
  skipWaiting(): Promise<void>;
  addEventListener(kind: 'install' | 'notificationclick', act: (event: Click) => void): void;
}

const scope = self as unknown as Scope;

scope.addEventListener('install', () => void scope.skipWaiting());

scope.addEventListener('notificationclick', (event) => {
  const { data } = event.notification;
  event.notification.close();
  const option = event.action === 'allow' ? data.allow : event.action === 'deny' ? data.deny : undefined;
  event.waitUntil(option && data.request ? answer(data.session, data.request, option) : show(data.session));
});

async function answer(session: string, request: string, option: string): Promise<void> {
  const path = `/admin/sessions/${encodeURIComponent(session)}/permissions/${encodeURIComponent(request)}`;
  try {
    const response = await fetch(path, {
      method: 'POST',
      headers: { accept: 'application/json', 'content-type': 'application/json' },
      body: JSON.stringify({ option }),
      credentials: 'same-origin',
      redirect: 'error',
    });
    if (response.ok) return;
  } catch {
    // The page says what is wrong.
  }
  await show(session);
}

/** Brings the console to the session: in a tab that is open, else in a new one. */
async function show(session: string): Promise<void> {
  const place = `/sessions/${encodeURIComponent(session)}`;
  const [page] = await scope.clients.matchAll({ type: 'window', includeUncontrolled: true });
  if (!page) {
    await scope.clients.openWindow(`/#${place}`);
    return;
  }
  page.postMessage({ go: place });
  // A browser may refuse to bring a window to the front.
  await page.focus().catch(() => undefined);
}

export {};
