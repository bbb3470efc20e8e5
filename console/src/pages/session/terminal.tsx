import type { Terminal } from '@xterm/xterm';
import { useEffect, useRef, useState } from 'preact/hooks';

import { ApiError, get } from '../../api';
import type { Live } from '../../shapes';
import { Attachment, watchable, type Writer } from '../../terminal/attach';
import { isReport } from '../../terminal/report';
import { safeTerminal, THEMES } from '../../terminal/safe';
import { dark } from '../../theme';
import { say } from '../../ui/toast';
import { Button, Empty, Skeleton, State } from '../../ui/parts';

interface Props {
  live: Live | null;
  loading: boolean;
  closed: boolean;
  backend: boolean;
}

export function TerminalTab({ live, loading, closed, backend }: Props) {
  // A process that has just ended is still worth looking at: its last screen stays until one leaves.
  const shown = useRef<Live | null>(null);
  if (live && watchable(live)) shown.current = live;
  const target = shown.current;
  if (loading && !target) {
    return (
      <div class="events-loading">
        <Skeleton lines={8} tall />
      </div>
    );
  }
  if (!target && live) {
    return (
      <Empty icon="now" title="No terminal">
        <p>This process of the Claude backend has no terminal. It answers an app’s requests; see the details above.</p>
      </Empty>
    );
  }
  if (!target) {
    return (
      <Empty icon="sessions" title={closed ? 'The session is closed' : 'Nothing is live here'}>
        <p>{closed || backend ? 'Its process is gone, and its screen with it.' : 'The next turn starts the agent again; its terminal then appears here.'}</p>
      </Empty>
    );
  }
  return <Screen key={`${target.id} ${target.terminal} ${target.pid}`} id={target.id} />;
}

/** How long after a key press input counts as a person's; composed input arrives a little later. */
const TOUCH = 120;
/** How large letters are where there is room. */
const FONT_SIZE = 14;
/** How small letters get so that all rows are seen. */
const SMALL_FONT_SIZE = 11;
/** The height of a row for each pixel of the letters' size. */
const LINE = 1.36;

function Screen({ id }: { id: string }) {
  const place = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const around = useRef<HTMLDivElement>(null);
  const attachment = useRef<Attachment | null>(null);
  const terminal = useRef<Terminal | null>(null);
  const [writer, setWriter] = useState<Writer>('nobody');
  const [size, setSize] = useState({ cols: 80, rows: 24 });
  const [state, setState] = useState<'joining' | 'open' | 'cut' | 'over'>('joining');
  const [end, setEnd] = useState('');
  const [hasTerminal, setHasTerminal] = useState(true);
  const isDark = dark.value;

  useEffect(() => {
    const element = place.current!;
    const screen = safeTerminal({
      cols: 80,
      rows: 24,
      fontSize: FONT_SIZE,
      lineHeight: 1.15,
      scrollback: 5000,
      cursorBlink: false,
      theme: dark.peek() ? THEMES.dark : THEMES.light,
      screenReaderMode: false,
    });
    terminal.current = screen;
    screen.open(element);
    // The agent gets every other key, also Tab: without this one, a keyboard could not leave.
    screen.attachCustomKeyEventHandler((event) => {
      if (event.key !== 'F6') return true;
      if (event.type === 'keydown') document.querySelector<HTMLElement>('.terminal-bar button, .crumb')?.focus();
      return false;
    });

    // Only what a person does here goes out: a sequence in the output can never type.
    let touched = 0;
    const touch = (event: Event) => {
      if (event.isTrusted) touched = performance.now();
    };
    const kinds = ['keydown', 'keypress', 'keyup', 'paste', 'beforeinput', 'input', 'compositionend'] as const;
    for (const kind of kinds) element.addEventListener(kind, touch, true);

    const resize = (cols: number, rows: number) => {
      screen.resize(Math.min(Math.max(cols, 2), 500), Math.min(Math.max(rows, 2), 300));
      setSize({ cols, rows });
      scale();
    };
    // The agent's terminal keeps its size; the letters adapt to the window.
    const scale = () => {
      const width = frame.current?.clientWidth ?? 0;
      if (!width) return;
      const wanted = (width - 34) / screen.cols / 0.602;
      // Where little is missing, the whole screen fits the height, too.
      const tall = Math.max(SMALL_FONT_SIZE, ((around.current?.clientHeight ?? 0) - 28) / screen.rows / LINE);
      const next = Math.max(6, Math.min(FONT_SIZE, Math.floor(Math.min(wanted, tall) * 2) / 2));
      if (screen.options.fontSize !== next) screen.options.fontSize = next;
    };
    const watch = new ResizeObserver(scale);
    watch.observe(frame.current!);
    watch.observe(around.current!);

    const joined = new Attachment(
      id,
      {
        hello: (hello) => {
          screen.reset();
          resize(hello.cols, hello.rows);
          setHasTerminal(hello.terminal);
          setWriter(hello.writer);
          setState('open');
          screen.options.disableStdin = !hello.terminal;
          if (hello.terminal) screen.focus();
        },
        output: (bytes) => screen.write(bytes),
        size: resize,
        writer: setWriter,
        refused: (reason) => say(reason || 'Somebody else is typing.', true),
        end: (reason) => {
          setEnd(reason);
          setState('over');
        },
        cut: () => setState('cut'),
      },
      async () => {
        try {
          const { live } = await get<{ live: Live[] }>('/admin/live');
          return live.some((one) => one.id === id && watchable(one));
        } catch (error) {
          // Away, or signed out: later, perhaps.
          return !(error instanceof ApiError && error.status === 404);
        }
      },
    );
    attachment.current = joined;
    const typing = screen.onData((data) => {
      if (performance.now() - touched > TOUCH || isReport(data)) return;
      joined.send(data);
    });
    return () => {
      typing.dispose();
      watch.disconnect();
      joined.close();
      screen.dispose();
    };
  }, [id]);

  useEffect(() => {
    if (terminal.current) terminal.current.options.theme = isDark ? THEMES.dark : THEMES.light;
  }, [isDark]);

  const fitToWindow = () => {
    const screen = terminal.current;
    const cells = place.current?.querySelector('.xterm-screen')?.getBoundingClientRect();
    const room = around.current?.getBoundingClientRect();
    if (!screen || !cells?.width || !room) return;
    const zoom = FONT_SIZE / (screen.options.fontSize ?? FONT_SIZE);
    const cols = Math.floor((room.width - 34) / ((cells.width / screen.cols) * zoom));
    const rows = Math.floor((room.height - 32) / ((cells.height / screen.rows) * zoom));
    attachment.current?.resize(Math.max(20, Math.min(cols, 300)), Math.max(8, Math.min(rows, 120)));
  };

  return (
    <div class="terminal">
      <div class="terminal-bar">
        {state === 'open' ? <Writing writer={writer} terminal={hasTerminal} /> : <State word={state === 'over' ? 'closed' : 'waiting'} label={state === 'over' ? end || 'ended' : state === 'cut' ? 'reconnecting' : 'joining'} />}
        <span class="soft push">
          {size.cols} × {size.rows}
        </span>
        {hasTerminal && state === 'open' ? (
          <>
            <Button icon="expand" look="quiet" title="Give the agent’s terminal the size of this window" onClick={fitToWindow}>
              Fit
            </Button>
            {writer === 'other' ? (
              <Button onClick={() => { attachment.current?.take(); terminal.current?.focus(); }}>Take the keyboard</Button>
            ) : writer === 'you' ? (
              <Button look="quiet" onClick={() => attachment.current?.release()}>
                Let go
              </Button>
            ) : null}
          </>
        ) : null}
      </div>
      <div class="terminal-room" ref={around}>
        <div class="terminal-frame" ref={frame}>
          <div class="terminal-place" ref={place} data-terminal />
        </div>
      </div>
    </div>
  );
}

function Writing({ writer, terminal }: { writer: Writer; terminal: boolean }) {
  if (!terminal) return <State word="idle" label="only events: this agent has no terminal" />;
  if (writer === 'you') return <State word="running" label="you type" />;
  if (writer === 'other') return <State word="waiting" label="somebody else types" />;
  return <State word="idle" label="click and type" />;
}
