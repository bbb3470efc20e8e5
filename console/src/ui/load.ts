// Loading: what is there stays on the page while it is looked for again.
import { useEffect, useRef, useState } from 'preact/hooks';

import { AwayError, fresh, standing } from '../api';

export interface Loaded<T> {
  value: T | null;
  error: unknown;
  loading: boolean;
  again: () => void;
}

/** Loads now, when `key` changes, when the server is back, and every so often. */
export function useLoad<T>(
  key: string,
  load: (abort: AbortSignal) => Promise<T>,
  every = 0,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: unknown; loading: boolean }>({
    key,
    value: null,
    error: null,
    loading: true,
  });
  const [turn, setTurn] = useState(0);
  const loader = useRef(load);
  loader.current = load;
  const since = fresh.value;
  const signedIn = standing.value === 'signed-in';

  useEffect(() => {
    if (!signedIn) return;
    const abort = new AbortController();
    setState((former) => ({ ...former, key, loading: true }));
    loader.current(abort.signal).then(
      (value) => {
        if (!abort.signal.aborted) setState({ key, value, error: null, loading: false });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        // The bar above reports an unreachable server; loaded data stays.
        setState((former) => ({
          key,
          value: former.value,
          error: error instanceof AwayError && former.value !== null ? null : error,
          loading: false,
        }));
      },
    );
    return () => abort.abort();
  }, [key, turn, since, signedIn]);

  useEffect(() => {
    if (!every || !signedIn) return;
    const timer = window.setInterval(() => {
      if (!document.hidden) setTurn((n) => n + 1);
    }, every);
    return () => clearInterval(timer);
  }, [every, signedIn]);

  return { value: state.value, error: state.error, loading: state.loading, again: () => setTurn((n) => n + 1) };
}
