// Requests to Hob. The cookie goes along by itself; there is no token here.
import { signal } from '@preact/signals';

/** What the console knows about the server and its own right to ask. */
export const standing = signal<'unknown' | 'signed-in' | 'signed-out'>('unknown');
/** Whether the server answers. */
export const away = signal(false);
/** Counts up when the server is back or somebody has signed in: pages look again. */
export const fresh = signal(0);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** The server could not be reached at all. */
export class AwayError extends Error {
  constructor() {
    super('Hob does not answer.');
  }
}

interface Options {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  /** A sign-in's 401 means a wrong token, not the end of a session. */
  signingIn?: boolean;
}

async function send(path: string, options: Options, accept: string): Promise<Response> {
  const init: RequestInit = {
    method: options.method ?? 'GET',
    headers: { accept },
    credentials: 'same-origin',
    cache: 'no-store',
    redirect: 'error',
  };
  if (options.body !== undefined) {
    init.headers = { accept, 'content-type': 'application/json' };
    init.body = JSON.stringify(options.body);
  }
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    lost();
    throw new AwayError();
  }
  found();
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (response.status === 401 && !options.signingIn) standing.value = 'signed-out';
  throw problem;
}

async function readProblem(response: Response): Promise<ApiError> {
  let code = 'failed';
  let message = `Hob answered ${response.status}.`;
  try {
    const body = (await response.json()) as { code?: string; error?: string };
    code = body.code ?? code;
    message = body.error ?? message;
  } catch {
    // Not Hob's own words; the status has to do.
  }
  const after = Number(response.headers.get('retry-after'));
  return new ApiError(response.status, code, message, after > 0 ? after : null);
}

export async function call<T>(path: string, options: Options = {}): Promise<T> {
  const response = await send(path, options, 'application/json');
  return (await response.json()) as T;
}

export async function callText(path: string, options: Options = {}): Promise<string> {
  const response = await send(path, options, 'text/plain');
  return response.text();
}

export const get = <T>(path: string, abort?: AbortSignal) => call<T>(path, abort ? { signal: abort } : {});
export const post = <T>(path: string, body: unknown = {}) => call<T>(path, { method: 'POST', body });
export const remove = <T>(path: string) => call<T>(path, { method: 'DELETE' });

/** A query string of what is there. */
export function query(values: Record<string, string | number | null | undefined>): string {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '') pairs.set(key, String(value));
  }
  const text = pairs.toString();
  return text ? `?${text}` : '';
}

/** Words for a person. */
export function inWords(error: unknown): string {
  if (error instanceof ApiError || error instanceof AwayError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

let probing: number | undefined;

/** The server is gone: say so, and look for it until it is back. */
export function lost(): void {
  away.value = true;
  if (probing !== undefined) return;
  let wait = 400;
  const probe = async () => {
    probing = undefined;
    try {
      const response = await fetch('/healthz', { cache: 'no-store' });
      if (response.ok) return found();
    } catch {
      // Still away.
    }
    wait = Math.min(wait * 1.5, 4000);
    probing = window.setTimeout(probe, wait);
  };
  probing = window.setTimeout(probe, wait);
}

function found(): void {
  if (!away.value) return;
  if (probing !== undefined) clearTimeout(probing);
  probing = undefined;
  away.value = false;
  fresh.value += 1;
}
