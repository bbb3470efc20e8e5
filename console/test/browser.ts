// As much of a browser as the connections need, moved on by hand.

/** Lets everything happen that waits for nothing but promises. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
}

interface Request {
  path: string;
  answer: (status: number, body: unknown) => Promise<void>;
}

/** Requests that wait for their answers, oldest first. */
export const requests: Request[] = [];

/** Answers the oldest request, which must be this one. */
export async function answer(path: string | RegExp, body: unknown, status = 200): Promise<void> {
  const request = requests.shift();
  const fits = request && (typeof path === 'string' ? request.path === path : path.test(request.path));
  if (!fits) throw new Error(`expected a request for ${path}, found ${request?.path ?? 'none'}`);
  await request.answer(status, body);
}

/** Timers that end when the test says so. */
export const timers = new Map<number, () => void>();
let count = 1_000_000;

export async function elapse(): Promise<void> {
  const due = [...timers.values()];
  timers.clear();
  for (const run of due) run();
  await settle();
}

let frames: ((now: number) => void)[] = [];
let time = 0;

/** A frame, long after the one before. */
export function frame(): void {
  const due = frames;
  frames = [];
  time += 1_000;
  for (const run of due) run(time);
}

/** What streams and sockets have in common here. */
class Connection extends EventTarget {
  closed = false;
  constructor(readonly url: string) {
    super();
  }
  close(): void {
    this.closed = true;
  }
}

export class FakeSource extends Connection {
  static all: FakeSource[] = [];
  static get open(): FakeSource[] {
    return FakeSource.all.filter((one) => !one.closed);
  }
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  constructor(url: string) {
    super(url);
    FakeSource.all.push(this);
  }
  say(name: string, id: number, data: unknown): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data), lastEventId: String(id) }));
  }
}

export class FakeSocket extends Connection {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  binaryType = '';
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  constructor(url: string) {
    super(url);
    FakeSocket.all.push(this);
  }
  say(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

const page = Object.assign(new EventTarget(), { hidden: false });

export function show(visible: boolean): void {
  page.hidden = !visible;
  page.dispatchEvent(new Event('visibilitychange'));
}

const later = (run: () => void) => {
  count += 1;
  timers.set(count, run);
  return count;
};

Object.assign(globalThis, {
  document: page,
  window: { setTimeout: later },
  location: { protocol: 'http:', host: 'here' },
  clearTimeout: (id: number | undefined) => timers.delete(id ?? 0),
  requestAnimationFrame: (run: (now: number) => void) => frames.push(run),
  cancelAnimationFrame: () => undefined,
  EventSource: FakeSource,
  WebSocket: FakeSocket,
  fetch: (path: string) =>
    new Promise((resolve) => {
      requests.push({
        path,
        answer: async (status, body) => {
          resolve({ ok: status < 400, status, headers: new Headers(), json: async () => body });
          await settle();
        },
      });
    }),
});

/** Nothing is left of the test before. */
export function reset(): void {
  requests.length = 0;
  timers.clear();
  frames = [];
  FakeSource.all = [];
  FakeSocket.all = [];
  page.hidden = false;
}
