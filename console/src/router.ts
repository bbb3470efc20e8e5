// Where one is: the part of the address after `#`.
import { signal } from '@preact/signals';

export interface Route {
  /** The parts of the path: `['sessions', ID, 'terminal']`. */
  path: string[];
  values: URLSearchParams;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#\/?/, '');
  const [path = '', values = ''] = text.split('?', 2);
  const parts = path.split('/').filter(Boolean).map(decode);
  return { path: parts.length ? parts : ['now'], values: new URLSearchParams(values) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(parse(location.hash));

window.addEventListener('hashchange', () => {
  route.value = parse(location.hash);
});

export function go(path: string): void {
  location.hash = path;
}

/** Changes the address without a step in the history, as while typing. */
export function replace(path: string): void {
  history.replaceState(null, '', `#${path}`);
  route.value = parse(location.hash);
}
