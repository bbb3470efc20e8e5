// Server-sent events that come back by themselves.
import { ApiError, away, get, lost, standing } from './api';

/** How long a page in the background keeps its stream. */
const HIDDEN = 20_000;

export interface Stream {
  close(): void;
}

interface Handlers {
  /** Returns the event id to continue after; called at every connection. */
  url: () => string;
  /** Names of the events, each with what to do with its data and its number. */
  on: Record<string, (data: string, id: string) => void>;
  /** The stream is connected. */
  open?: () => void;
  /**
   * What is asked, when a connection ends, whether one still may and whether there still is something: an
   * `EventSource` says neither. A stream whose place is gone (404) is not tried again.
   */
  ask?: string;
}

/**
 * Follows a stream. The browser's own reconnecting is not used: a refused sign-in has to end it, and each
 * connection begins after what was really seen. There is one connection at most.
 */
export function follow(handlers: Handlers): Stream {
  let source: EventSource | null = null;
  let timer: number | undefined;
  let hiding: number | undefined;
  let closed = false;
  /** It is being asked whether to connect again. */
  let retrying = false;
  /** Nobody is signed in; it goes on when somebody is. */
  let signedOut = false;
  let wait = 300;
  let since = 0;

  const connect = () => {
    clearTimeout(timer);
    timer = undefined;
    source?.close();
    source = null;
    if (closed) return;
    const current = new EventSource(handlers.url());
    source = current;
    current.onopen = () => {
      since = Date.now();
      handlers.open?.();
    };
    current.onerror = () => {
      current.close();
      if (source !== current) return;
      source = null;
      // One that ends as soon as it has begun is not asked for again and again.
      if (since && Date.now() - since > 3000) wait = 300;
      since = 0;
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
    if (closed || retrying || timer !== undefined) return;
    retrying = true;
    try {
      await get(handlers.ask ?? '/admin/me');
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) close();
      else if (!(error instanceof ApiError)) lost();
    } finally {
      retrying = false;
    }
    if (closed) return;
    signedOut = standing.value === 'signed-out';
    if (signedOut) return;
    wait = away.value ? 1000 : Math.min(wait * 2, 8000);
    if (document.hidden) return;
    timer = window.setTimeout(connect, wait);
  };

  const unsubscribe = standing.subscribe((now) => {
    if (now !== 'signed-in' || !signedOut) return;
    signedOut = false;
    if (!document.hidden) connect();
  });

  // A browser has few connections for one server: a page nobody looks at gives its own back.
  const onVisibility = () => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = window.setTimeout(() => {
        source?.close();
        source = null;
      }, HIDDEN);
    } else if (!source && timer === undefined && !retrying && !signedOut) connect();
  };
  document.addEventListener('visibilitychange', onVisibility);

  const close = () => {
    closed = true;
    source?.close();
    source = null;
    clearTimeout(timer);
    clearTimeout(hiding);
    unsubscribe();
    document.removeEventListener('visibilitychange', onVisibility);
  };

  connect();
  return { close };
}
