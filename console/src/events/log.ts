// A session's log in memory: a bounded window onto it that follows the end or stays where one reads.
import { signal } from '@preact/signals';

import { get, query } from '../api';
import type { LogEvent } from '../shapes';
import { follow, type Stream } from '../stream';
import { weight } from './block';
import { Reduction } from './reduce';

/** Number of blocks kept while following; twice as many while reading older ones. */
const BLOCKS = 1_200;
/** Number of characters kept. */
const WEIGHT = 3_000_000;
/** How many events are asked for at once. */
const PAGE = 400;

/** Words of the audit, each an event of its own name in the stream. */
const AUDIT = ['create', 'turn', 'cancel', 'permission', 'setting', 'resume', 'stalled', 'notice', 'close', 'sweep_close'];

interface Page {
  events: LogEvent[];
  more?: boolean;
  last_event?: number;
}

export class EventLog {
  /** Counts up when blocks have changed, with a frame. */
  readonly revision = signal(0);
  readonly loading = signal(true);
  readonly failed = signal<unknown>(null);
  /** Whether there is more before the first block. */
  readonly older = signal(false);
  /** How many events came that are not shown, because one reads further up. */
  readonly missed = signal(0);
  /** The latest words of the audit, for those who show the session's state. */
  readonly latest = signal<{ event: string; seq: number } | null>(null);
  /** Whether the end is followed; a reader who scrolls up stays where they are. */
  following = true;

  private reduction = new Reduction();
  private firstSeq = 0;
  private lastSeq = 0;
  /** The last event heard, shown or not. */
  private heard = 0;
  private stream: Stream | null = null;
  private frame: number | undefined;
  private told = 0;
  private closed = false;
  private fetching = false;
  private waiting: LogEvent[] = [];

  private readonly path: string;

  constructor(private readonly session: string) {
    this.path = `${session}/events`;
  }

  get blocks() {
    return this.reduction.blocks;
  }

  /** The turn that runs. */
  get turn() {
    return this.reduction.turn;
  }

  /** Loads the end of the log and follows it. */
  async start(last: number, open: boolean): Promise<void> {
    await this.loadEnd(last);
    // Nothing more will ever happen in a closed session.
    if (this.closed || this.failed.value || !open) return;
    this.stream ??= follow({
      url: () => `${this.path}${query({ after: this.heard })}`,
      ask: this.session,
      on: {
        message: (data, id) => this.hear(Number(id), 'message', data),
        ...Object.fromEntries(
          AUDIT.map((name) => [name, (data: string, id: string) => this.hear(Number(id), name, data)]),
        ),
      },
    });
  }

  stop(): void {
    this.closed = true;
    this.stream?.close();
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
  }

  /** Back to the end, wherever one was. */
  async jumpToEnd(): Promise<void> {
    this.following = true;
    if (this.missed.value === 0 || this.loading.value) return;
    await this.loadEnd(this.heard);
  }

  /** Loads what came before. */
  async loadOlder(): Promise<void> {
    if (this.fetching || this.loading.value || !this.older.value || this.closed) return;
    this.fetching = true;
    const reduction = this.reduction;
    try {
      const page = await get<Page>(`${this.path}${query({ before: this.firstSeq, limit: PAGE })}`);
      // Who has gone to the end meanwhile has another window, which this does not belong to.
      if (this.closed || this.reduction !== reduction) return;
      const older = new Reduction();
      for (const event of page.events) older.push(event);
      this.reduction.prepend(older);
      this.firstSeq = page.events[0]?.seq ?? this.firstSeq;
      this.older.value = page.events.length > 0 && this.firstSeq > 1;
      this.trim();
      this.tell();
    } finally {
      this.fetching = false;
    }
  }

  private async loadEnd(last: number): Promise<void> {
    this.loading.value = true;
    this.failed.value = null;
    this.waiting = [];
    try {
      const page = await get<Page>(`${this.path}${query({ before: last + 1, limit: PAGE })}`);
      if (this.closed) return;
      const reduction = new Reduction();
      for (const event of page.events) reduction.push(event);
      this.reduction = reduction;
      this.firstSeq = page.events[0]?.seq ?? 1;
      this.lastSeq = page.events.at(-1)?.seq ?? last;
      this.heard = Math.max(this.heard, this.lastSeq);
      this.older.value = this.firstSeq > 1;
      this.missed.value = Math.max(0, this.heard - this.lastSeq);
      if (this.missed.value > 0) await this.catchUp();
    } catch (error) {
      this.failed.value = error;
    } finally {
      this.loading.value = false;
      this.tell();
    }
  }

  /** Reads what was heard but not kept, until it is all there or one reads further up again. */
  private async catchUp(): Promise<void> {
    while (!this.closed && this.following && this.lastSeq < this.heard) {
      const page = await get<Page>(`${this.path}${query({ after: this.lastSeq, limit: PAGE })}`);
      for (const event of page.events) {
        if (event.seq <= this.lastSeq) continue;
        this.reduction.push(event);
        this.lastSeq = event.seq;
      }
      this.heard = Math.max(this.heard, this.lastSeq);
      this.trim();
      if (!page.events.length) break;
    }
    this.missed.value = this.following ? 0 : Math.max(0, this.heard - this.lastSeq);
    // What is counted as missed is read when one comes back, not twice.
    if (this.missed.value > 0) this.waiting = [];
  }

  private hear(seq: number, kind: string, data: string): void {
    if (!(seq > this.heard)) return;
    this.heard = seq;
    if (this.missed.value > 0 && !this.following) {
      this.missed.value += 1;
      if (kind !== 'message') this.latest.value = { event: kind, seq };
      return;
    }
    let body: unknown;
    try {
      body = JSON.parse(data);
    } catch {
      return;
    }
    const at = new Date().toISOString();
    const event: LogEvent =
      kind === 'message'
        ? { seq, at, event: kind, message: body }
        : { at, ...(body as object), seq, event: kind };
    // A turn's end brings the whole turn along; what was said is here already.
    if (kind === 'turn') delete event['events'];
    if (kind !== 'message') this.latest.value = { event: kind, seq };
    this.waiting.push(event);
    if (kind === 'close' || kind === 'sweep_close') this.stream?.close();
    // A page in the background may get no frame for a long time.
    if (this.waiting.length > 1_000) this.take();
    this.tell();
  }

  /** Tells the page with a frame, twenty times a second at most: nobody reads faster. */
  private tell(): void {
    if (this.frame !== undefined || this.closed) return;
    const settle = (now: number) => {
      if (now - this.told < 50) {
        this.frame = requestAnimationFrame(settle);
        return;
      }
      this.told = now;
      this.frame = undefined;
      this.take();
      this.revision.value += 1;
    };
    this.frame = requestAnimationFrame(settle);
  }

  private take(): void {
    // A page that is being read comes before what is heard meanwhile: that waits, so that no event is jumped over.
    if (this.loading.value) return;
    const events = this.waiting;
    this.waiting = [];
    for (const event of events) {
      if (event.seq <= this.lastSeq) continue;
      if (!this.following && (this.missed.value > 0 || this.blocks.length >= 2 * BLOCKS)) {
        this.missed.value += 1;
        continue;
      }
      this.reduction.push(event);
      this.lastSeq = event.seq;
    }
    this.trim();
  }

  /** Keeps the window bounded: from the far end of where one is. */
  private trim(): void {
    const blocks = this.blocks;
    if (this.following) {
      let drop = Math.max(0, blocks.length - BLOCKS);
      let total = 0;
      for (let at = blocks.length - 1; at >= drop; at -= 1) {
        total += weight(blocks[at]!);
        if (total > WEIGHT) {
          drop = at;
          break;
        }
      }
      // In larger steps, so that it does not happen with every event.
      if (drop < 100 && total <= WEIGHT) return;
      if (drop <= 0) return;
      this.reduction.dropOldest(drop);
      this.firstSeq = blocks[0]?.first ?? this.lastSeq + 1;
      this.older.value = this.firstSeq > 1;
      return;
    }
    const over = blocks.length - 2 * BLOCKS;
    if (over <= 0) return;
    this.reduction.dropNewest(over);
    const last = blocks.at(-1)?.last ?? this.lastSeq;
    this.lastSeq = Math.min(this.lastSeq, last);
    this.missed.value = Math.max(1, this.heard - this.lastSeq);
  }
}
