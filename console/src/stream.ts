// Server-sent events that come back by themselves.
import { ApiError, away, get, lost, standing } from './api';

/** How long a page in the background keeps its stream. */
const HIDDEN = 20_000;

export interface Stream {
  close(): void;
}

interface Handlers {
  /** Where to go on: asked anew at every connection. */
  url: () => string;
  /** Names of the events, each with what to do with its data and its number. */
  on: Record<string, (data: string, id: string) => void>;
  /** The stream is connected. */
  open?: () => void;
  /** There is nothing there (any more). */
  missing?: () => void;
}

/**
 * Follows a stream. The browser's own reconnecting is not used: a refused sign-in has to end it, and each
 * connection begins after what was really seen.
 */
export function follow(handlers: Handlers): Stream {
  let source: EventSource | null = null;
  let timer: number | undefined;
  let closed = false;
  let wait = 300;
  let since = 0;

  const connect = () => {
    timer = undefined;
    if (closed) return;
    const current = new EventSource(handlers.url());
    source = current;
    current.onopen = () => {
      since = Date.now();
      handlers.open?.();
    };
    current.onerror = () => {
      current.close();
      // One that ends as soon as it has begun is not asked for again and again.
      if (since && Date.now() - since > 3000) wait = 300;
      since = 0;
      if (source === current) source = null;
      void retry();
    };
    for (const [name, handle] of Object.entries(handlers.on)) {
      current.addEventListener(name, (event) => {
        // The connection's own errors have the same name as an event could have, but no data.
        if (event instanceof MessageEvent) handle(event.data as string, event.lastEventId);
      });
    }
  };

  const retry = async () => {
    if (closed || timer !== undefined) return;
    try {
      await get('/admin/me');
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) handlers.missing?.();
      else if (!(error instanceof ApiError)) lost();
    }
    if (closed) return;
    if (standing.value === 'signed-out') {
      const stop = standing.subscribe((now) => {
        if (now !== 'signed-in') return;
        queueMicrotask(() => stop());
        connect();
      });
      return;
    }
    wait = away.value ? 1000 : Math.min(wait * 2, 8000);
    if (document.hidden) return;
    timer = window.setTimeout(connect, wait);
  };

  // A browser has few connections for one server: a page nobody looks at gives its own back.
  let hiding: number | undefined;
  const onVisibility = () => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = window.setTimeout(() => {
        source?.close();
        source = null;
      }, HIDDEN);
    } else if (!source && timer === undefined) connect();
  };
  document.addEventListener('visibilitychange', onVisibility);

  connect();
  return {
    close() {
      closed = true;
      source?.close();
      clearTimeout(timer);
      clearTimeout(hiding);
      document.removeEventListener('visibilitychange', onVisibility);
    },
  };
}
