// A live terminal over a WebSocket.
import { standing } from '../api';
import type { Live } from '../shapes';

export type Writer = 'you' | 'other' | 'nobody';

/** Whether there is something to watch: a session without a terminal shows its events, other processes nothing. */
export const watchable = (live: Pick<Live, 'kind' | 'terminal'>) => live.terminal || live.kind === 'session';

/** The server's reasons that say nothing about the terminal itself: the cookie's time is over, or its own. */
const NOT_OVER = ['the sign-in has ended', 'hob is stopping'];

export interface AttachHandlers {
  hello(hello: { cols: number; rows: number; terminal: boolean; writer: Writer }): void;
  output(bytes: Uint8Array): void;
  size(cols: number, rows: number): void;
  writer(writer: Writer): void;
  refused(reason: string): void;
  /** The agent's terminal is over. */
  end(reason: string): void;
  /** The connection was cut; it will be tried again. */
  cut(): void;
}

export class Attachment {
  private socket: WebSocket | null = null;
  private timer: number | undefined;
  private closed = false;
  private ended = false;
  private wait = 300;
  /** Nobody is signed in; it goes on when somebody is. */
  private signedOut = false;
  private readonly unsubscribe: () => void;

  constructor(
    private readonly id: string,
    private readonly handlers: AttachHandlers,
    private readonly allowed: () => Promise<boolean>,
  ) {
    this.unsubscribe = standing.subscribe((now) => {
      if (now !== 'signed-in' || !this.signedOut) return;
      this.signedOut = false;
      this.connect();
    });
    this.connect();
  }

  send(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
  }

  resize(cols: number, rows: number): void {
    this.say({ type: 'resize', cols, rows });
  }

  take(): void {
    this.say({ type: 'take' });
  }

  release(): void {
    this.say({ type: 'release' });
  }

  close(): void {
    this.closed = true;
    this.unsubscribe();
    if (this.timer !== undefined) clearTimeout(this.timer);
    this.socket?.close(1000);
  }

  private say(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  private connect(): void {
    this.timer = undefined;
    if (this.closed) return;
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const path = `/admin/live/${encodeURIComponent(this.id)}/attach?scrollback=1000`;
    const socket = new WebSocket(`${scheme}://${location.host}${path}`);
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
      this.wait = 300;
      if (typeof event.data === 'string') this.hear(event.data);
      else this.handlers.output(new Uint8Array(event.data));
    };
    socket.onclose = () => {
      if (this.closed || this.ended) return;
      this.handlers.cut();
      void this.retry();
    };
  }

  private async retry(): Promise<void> {
    // Asks first whether it still may and whether there still is something: a WebSocket's refusal says neither.
    const allowed = await this.allowed();
    if (this.closed || this.timer !== undefined) return;
    if (!allowed) {
      this.ended = true;
      this.handlers.end('It is no longer live.');
      return;
    }
    this.signedOut = standing.value === 'signed-out';
    if (this.signedOut) return;
    this.wait = Math.min(this.wait * 2, 5000);
    this.timer = window.setTimeout(() => this.connect(), this.wait);
  }

  private hear(text: string): void {
    let message: { type?: string; cols?: number; rows?: number; terminal?: boolean; writer?: Writer; reason?: string };
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    const { cols = 80, rows = 24, writer = 'nobody', reason = '' } = message;
    switch (message.type) {
      case 'hello':
        return this.handlers.hello({ cols, rows, terminal: message.terminal ?? true, writer });
      case 'size':
        return this.handlers.size(cols, rows);
      case 'writer':
        return this.handlers.writer(writer);
      case 'refused':
        return this.handlers.refused(reason);
      case 'end':
        // Then it is as if the connection was cut, and goes on with the next sign-in or the next server.
        if (NOT_OVER.includes(reason)) return;
        this.ended = true;
        return this.handlers.end(reason);
      default:
    }
  }
}
