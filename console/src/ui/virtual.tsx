// A list of which only what is seen is in the page. Rows may have any height and may grow.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useReducer, useRef } from 'preact/hooks';

interface Props<T> {
  items: readonly T[];
  keyOf: (item: T) => string;
  /** A first guess of a row's height. */
  guess: (item: T) => number;
  row: (item: T, index: number) => ComponentChildren;
  /** Counts up when items have changed in place. */
  revision: number;
  /** Whether the end stays in view when something is added. */
  following: boolean;
  onFollow: (following: boolean) => void;
  /** The beginning came into view. */
  onTop?: () => void;
  label: string;
  header?: ComponentChildren;
  footer?: ComponentChildren;
}

const OVERSCAN = 600;
const NEAR_END = 48;

export function Virtual<T>(props: Props<T>) {
  const { items, keyOf, guess } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const rows = useRef(new Map<string, HTMLElement>());
  const observer = useRef<ResizeObserver | null>(null);
  const view = useRef({ top: 0, height: 800 });
  const anchors = useRef<{ key: string; offset: number }[]>([]);
  const settling = useRef(false);
  const touched = useRef(0);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const latest = useRef(props);
  latest.current = props;

  // Heights of rows that are gone would only pile up.
  if (heights.current.size > items.length * 2 + 500) {
    const keys = new Set(items.map(keyOf));
    for (const key of heights.current.keys()) if (!keys.has(key)) heights.current.delete(key);
  }

  const offsets = new Float64Array(items.length + 1);
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at]!;
    offsets[at + 1] = offsets[at]! + (heights.current.get(keyOf(item)) ?? guess(item));
  }
  const total = offsets[items.length]!;
  const head = inner.current?.offsetTop ?? 0;

  let top = view.current.top - head;
  if (props.following) top = total - view.current.height;
  const from = Math.max(0, lowerBound(offsets, top - OVERSCAN) - 1);
  const to = Math.min(items.length, lowerBound(offsets, top + view.current.height + OVERSCAN) + 1);

  useLayoutEffect(() => {
    const element = scroller.current!;
    observer.current = new ResizeObserver((entries) => {
      let changed = false;
      for (const entry of entries) {
        if (entry.target === element) {
          view.current.height = element.clientHeight;
          changed = true;
          continue;
        }
        const key = (entry.target as HTMLElement).dataset['key'] ?? '';
        const height = entry.borderBoxSize[0]?.blockSize ?? 0;
        if (height > 0 && heights.current.get(key) !== height) {
          heights.current.set(key, height);
          changed = true;
        }
      }
      if (changed) redraw(undefined);
    });
    observer.current.observe(element);
    view.current.height = element.clientHeight;
    redraw(undefined);
    return () => observer.current?.disconnect();
  }, []);

  // Where one reads stays where it is while rows above get their true height, and the end stays the end.
  useLayoutEffect(() => {
    const element = scroller.current!;
    if (props.following) {
      const end = element.scrollHeight - element.clientHeight;
      if (Math.abs(element.scrollTop - end) > 1) {
        settling.current = true;
        element.scrollTop = end;
      }
    } else if (anchors.current.length) {
      const places = new Map(anchors.current.map((one) => [one.key, one.offset]));
      const index = items.findIndex((item) => places.has(keyOf(item)));
      if (index >= 0) {
        const want = offsets[index]! + (inner.current?.offsetTop ?? 0) + places.get(keyOf(items[index]!))!;
        if (Math.abs(element.scrollTop - want) > 1) {
          settling.current = true;
          element.scrollTop = want;
        }
      }
    }
    view.current.top = element.scrollTop;
  });

  const onScroll = () => {
    // The last event of a list may come when it is already gone.
    const element = scroller.current;
    if (!element) return;
    const now = latest.current;
    view.current.top = element.scrollTop;
    view.current.height = element.clientHeight;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
    // Scrolling of our own says nothing about what a person wants.
    const person = performance.now() - touched.current < 400;
    if ((person || !settling.current) && atEnd !== now.following) now.onFollow(atEnd);
    settling.current = false;
    const inside = element.scrollTop - (inner.current?.offsetTop ?? 0);
    const index = Math.max(0, lowerBound(offsets, inside + 1) - 1);
    // Several, because a row may be gone when more is loaded: a page's first row says which turn it is in.
    anchors.current = now.items.slice(index, index + 4).map((item, at) => ({ key: keyOf(item), offset: inside - offsets[index + at]! }));
    if (inside < 400) now.onTop?.();
    redraw(undefined);
  };

  const touch = (up: boolean) => {
    touched.current = performance.now();
    if (up && latest.current.following && (scroller.current?.scrollTop ?? 0) > 0) latest.current.onFollow(false);
  };

  useEffect(() => {
    if (view.current.top - head < 400 && !props.following) props.onTop?.();
  }, [items.length]);

  const shown = [];
  for (let at = from; at < to; at += 1) {
    const item = items[at]!;
    const key = keyOf(item);
    shown.push(
      <div
        key={key}
        data-key={key}
        class="row"
        style={{ transform: `translateY(${offsets[at]}px)` }}
        ref={(element) => {
          const former = rows.current.get(key);
          if (element && former !== element) {
            rows.current.set(key, element as HTMLElement);
            observer.current?.observe(element as HTMLElement);
          } else if (!element && former) {
            rows.current.delete(key);
            observer.current?.unobserve(former);
          }
        }}
      >
        {props.row(item, at)}
      </div>,
    );
  }

  return (
    <div
      class="virtual"
      ref={scroller}
      tabIndex={0}
      role="log"
      aria-label={props.label}
      aria-live="off"
      onScroll={onScroll}
      onWheel={(event) => touch(event.deltaY < 0)}
      onTouchMove={() => touch(false)}
      onPointerMove={(event) => event.buttons && touch(false)}
      onKeyDown={(event) => /^(PageUp|PageDown|ArrowUp|ArrowDown|Home|End| )$/.test(event.key) && touch(/^(PageUp|ArrowUp|Home)$/.test(event.key))}
    >
      {props.header}
      <div class="virtual-inner" ref={inner} style={{ height: `${total}px` }}>
        {shown}
      </div>
      {props.footer}
    </div>
  );
}

/** The first index whose value is at least this. */
function lowerBound(values: Float64Array, wanted: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
