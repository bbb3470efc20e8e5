// Numbers and times for people.
import type { Usage } from './shapes';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How long: `4 s`, `12 min`, `3 h 20 min`, `5 d`. */
export function span(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) {
    const minutes = Math.floor((ms % HOUR) / MINUTE);
    return `${Math.floor(ms / HOUR)} h${minutes ? ` ${minutes} min` : ''}`;
  }
  return `${Math.floor(ms / DAY)} d`;
}

/** How old: whole units only, so that it does not flicker. */
export function age(since: string | null | undefined, now: number): string {
  if (!since) return '';
  const ms = now - Date.parse(since);
  if (!Number.isFinite(ms)) return '';
  if (ms < 5 * SECOND) return 'now';
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  return span(ms);
}

/** `14:02`, `yesterday 14:02`, `12 Nov 14:02`, `12 Nov 2025`. */
export function moment(at: string | null | undefined, now: number): string {
  if (!at) return '';
  const then = new Date(at);
  if (Number.isNaN(then.getTime())) return '';
  const today = new Date(now);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  const midnight = new Date(today.getFullYear(), today.getMonth(), today.getDate()).getTime();
  if (then.getTime() >= midnight) return clock;
  if (then.getTime() >= midnight - DAY) return `yesterday ${clock}`;
  const day = `${then.getDate()} ${MONTHS[then.getMonth()]}`;
  return then.getFullYear() === today.getFullYear() ? `${day} ${clock}` : `${day} ${then.getFullYear()}`;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const two = (number: number) => String(number).padStart(2, '0');

/** A calendar day: `12 Nov`. */
export function day(text: string): string {
  const [, month, date] = text.split('-').map(Number);
  return month && date ? `${date} ${MONTHS[month - 1]}` : text;
}

/** `950`, `12.4 k`, `3.1 M`. */
export function count(number: number | null | undefined): string {
  const n = number ?? 0;
  if (n < 10_000) return (Math.round(n * 10) / 10).toLocaleString('en');
  if (n < 1_000_000) return `${trim(n / 1000)} k`;
  if (n < 1_000_000_000) return `${trim(n / 1_000_000)} M`;
  return `${trim(n / 1_000_000_000)} G`;
}

const trim = (n: number) => (n < 100 ? n.toFixed(1).replace(/\.0$/, '') : String(Math.round(n)));

/** Money, with as many places as it needs. */
export function dollars(amount: number | null | undefined): string {
  if (!amount) return '$0';
  if (amount < 0.01) return '<$0.01';
  return `$${amount < 100 ? amount.toFixed(2) : Math.round(amount).toLocaleString('en')}`;
}

/** The cost of a usage; nothing without tokens. Some agents report tokens alone. */
export function costOf(usage: Usage): string {
  if (usage.cost_usd) return dollars(usage.cost_usd);
  return tokensOf(usage) ? 'no cost reported' : '';
}

/** All tokens of a usage, also those that the cache gave. */
export function tokensOf(usage: Omit<Usage, 'cost_usd'>): number {
  return usage.input_tokens + usage.output_tokens + usage.cached_read_tokens + usage.cached_write_tokens;
}

/** One thing or many. */
export function many(number: number, one: string, more = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : more}`;
}

/** The last parts of a path, for titles. */
export function shortPath(path: string | null | undefined): string {
  if (!path) return '';
  const parts = path.split('/').filter(Boolean);
  return parts.length <= 2 ? path : `…/${parts.slice(-2).join('/')}`;
}

/** Where a session works: a folder of its own has no name worth reading. */
export function place(path: string | null | undefined): string {
  return path && /\/workspaces\/[0-9a-f]{32}$/.test(path) ? 'own folder' : shortPath(path);
}

/** Who said a remembered turn: an app's user is the app itself. */
export function saidBy(turn: { role: string; app?: string }): string {
  return turn.role === 'user' ? (turn.app ?? 'you') : turn.role;
}

/** The beginning of an identifier. */
export const shortId = (id: string) => id.slice(0, 8);
