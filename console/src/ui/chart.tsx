// Bars over days, drawn by hand.
import { useState } from 'preact/hooks';

import { day } from '../format';

export interface Bar {
  day: string;
  value: number;
  /** A part of the value, drawn in another colour. */
  bad?: number;
}

const WIDTH = 380;
const HEIGHT = 150;
const BOTTOM = 20;
const LEFT = 40;

interface Props {
  bars: Bar[];
  format: (value: number) => string;
  label: string;
  /** The time that all bars together stand for: `in 30 days`. */
  span: string;
  /** Whether a bar is a week. */
  weekly?: boolean;
  /** What the scale reaches to at least. */
  least?: number;
}

export function Bars({ bars, format, label, span, weekly = false, least = 0 }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const top = ceiling(Math.max(...bars.map((bar) => bar.value), least));
  const inner = HEIGHT - BOTTOM - 8;
  const step = (WIDTH - LEFT) / Math.max(1, bars.length);
  const width = Math.max(2, Math.min(22, step * 0.66));
  const y = (value: number) => 8 + inner - (top ? (value / top) * inner : 0);
  const total = bars.reduce((sum, bar) => sum + bar.value, 0);
  const shown = at === null ? null : bars[at];
  return (
    <figure class="chart">
      <figcaption>
        <span>{label}</span>
        <strong>{shown ? format(shown.value) : format(total)}</strong>
        <small aria-live="polite">{shown ? `${weekly ? 'week of ' : ''}${day(shown.day)}${shown.bad ? `, ${format(shown.bad)} failed` : ''}` : span}</small>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        tabindex={0}
        aria-label={`${label}: ${format(total)} ${span}`}
        onMouseLeave={() => setAt(null)}
        onBlur={() => setAt(null)}
        onKeyDown={(event) => {
          const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
          if (!by) return;
          event.preventDefault();
          setAt(Math.min(bars.length - 1, Math.max(0, (at ?? (by > 0 ? -1 : bars.length)) + by)));
        }}
      >
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line class="grid" x1={LEFT} x2={WIDTH} y1={y(top * part)} y2={y(top * part)} />
            <text class="axis" x={LEFT - 6} y={y(top * part) + 3.500} text-anchor="end">
              {top || part === 0 ? format(top * part) : ''}
            </text>
          </g>
        ))}
        {bars.map((bar, index) => {
          const x = LEFT + index * step + (step - width) / 2;
          return (
            <g key={bar.day} class={index === at ? 'bar over' : 'bar'} onMouseEnter={() => setAt(index)}>
              <rect class="touch" x={LEFT + index * step} y={0} width={step} height={HEIGHT - BOTTOM} />
              {bar.value > 0 ? <rect class="value" x={x} y={y(bar.value)} width={width} height={Math.max(1.500, y(0) - y(bar.value))} rx={2} /> : null}
              {bar.bad ? <rect class="bad" x={x} y={y(bar.bad)} width={width} height={Math.max(1.500, y(0) - y(bar.bad))} rx={2} /> : null}
              {index % Math.ceil(bars.length / 4) === 0 ? (
                <text class="axis" x={x + width / 2} y={HEIGHT - 5} text-anchor="middle">
                  {day(bar.day)}
                </text>
              ) : null}
            </g>
          );
        })}
      </svg>
    </figure>
  );
}

/** A round number at or above. */
export function ceiling(value: number): number {
  if (value <= 0) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((n) => n * unit).find((n) => n >= value - 1e-9)!;
}

/** Joins days into weeks of seven; the last one ends with the last day. */
export function weeks<T>(days: T[]): T[][] {
  const found: T[][] = [];
  for (let end = days.length; end > 0; end -= 7) found.unshift(days.slice(Math.max(0, end - 7), end));
  return found;
}

/** A bar for each of the last days, also for those on which nothing was. */
export function lastDays(days: number, today: Date): string[] {
  return Array.from({ length: days }, (_, at) => {
    const date = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate() - (days - 1 - at)));
    return date.toISOString().slice(0, 10);
  });
}
