// A small picture of a terminal: xterm.js reads the bytes, a canvas shows the cells.
import type { Terminal } from '@xterm/xterm';

import { FONT, safeTerminal, THEMES } from './safe';

type Theme = (typeof THEMES)['dark'] | (typeof THEMES)['light'];

const CELL_WIDTH = 6;
const CELL_HEIGHT = 12;

export class Mini {
  private terminal: Terminal | null = null;
  private dark = true;
  private pending: { cols: number; rows: number; ansi: string } | null = null;
  private busy = false;

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** Shows this screen. Of several that come while one is read only the last is shown. */
  show(cols: number, rows: number, ansi: string, dark: boolean): void {
    this.dark = dark;
    this.pending = { cols, rows, ansi };
    if (!this.busy) this.next();
  }

  /** The same screen in the other colours. */
  recolour(dark: boolean): void {
    this.dark = dark;
    if (this.terminal) this.paint(this.terminal);
  }

  /** The screen's lines, for those who do not see it. */
  text(): string {
    const buffer = this.terminal?.buffer.active;
    if (!buffer || !this.terminal) return '';
    const lines = [];
    for (let row = 0; row < this.terminal.rows; row += 1) {
      lines.push(buffer.getLine(buffer.viewportY + row)?.translateToString(true) ?? '');
    }
    return lines.join('\n').trimEnd();
  }

  dispose(): void {
    this.terminal?.dispose();
    this.terminal = null;
    this.pending = null;
  }

  private next(): void {
    const screen = this.pending;
    this.pending = null;
    if (!screen) return;
    const cols = Math.min(Math.max(screen.cols, 2), 300);
    const rows = Math.min(Math.max(screen.rows, 2), 120);
    const terminal = (this.terminal ??= safeTerminal({ cols, rows, scrollback: 0 }));
    if (terminal.cols !== cols || terminal.rows !== rows) terminal.resize(cols, rows);
    terminal.reset();
    this.busy = true;
    terminal.write(screen.ansi, () => {
      this.busy = false;
      if (!this.terminal) return;
      this.paint(terminal);
      this.next();
    });
  }

  private paint(terminal: Terminal): void {
    const theme: Theme = this.dark ? THEMES.dark : THEMES.light;
    const scale = Math.min(2, Math.max(1, window.devicePixelRatio || 1)) * 1.25;
    const { cols, rows } = used(terminal);
    const width = cols * CELL_WIDTH;
    const height = rows * CELL_HEIGHT;
    const canvas = this.canvas;
    // Whether it is as flat as its place, so that it stands at the top.
    canvas.toggleAttribute('data-short', height / width < 0.42);
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext('2d', { alpha: false });
    if (!context) return;
    context.scale(scale, scale);
    context.fillStyle = theme.background;
    context.fillRect(0, 0, width + 2, height + 2);
    context.textBaseline = 'middle';
    const font = `${CELL_WIDTH / 0.602}px ${FONT}`;
    const buffer = terminal.buffer.active;
    const cell = buffer.getNullCell();
    for (let row = 0; row < rows; row += 1) {
      const line = buffer.getLine(buffer.viewportY + row);
      if (!line) continue;
      const y = row * CELL_HEIGHT;
      for (let column = 0; column < cols; column += 1) {
        if (!line.getCell(column, cell)) continue;
        const characters = cell.getChars();
        const inverse = cell.isInverse() !== 0;
        let foreground = colour(theme, cell.getFgColor(), cell.isFgRGB(), cell.isFgPalette(), cell.isBold() !== 0) ?? theme.foreground;
        let background = colour(theme, cell.getBgColor(), cell.isBgRGB(), cell.isBgPalette(), false);
        if (inverse) [foreground, background] = [background ?? theme.background, foreground];
        if (background) {
          context.fillStyle = background;
          context.fillRect(column * CELL_WIDTH, y, CELL_WIDTH * Math.max(1, cell.getWidth()) + 0.5, CELL_HEIGHT);
        }
        if (!characters || characters === ' ') continue;
        context.font = cell.isBold() ? `600 ${font}` : font;
        context.globalAlpha = cell.isDim() ? 0.6 : 1;
        context.fillStyle = foreground;
        context.fillText(characters, column * CELL_WIDTH, y + CELL_HEIGHT / 2);
        context.globalAlpha = 1;
      }
    }
    if (buffer.cursorY < rows) {
      context.fillStyle = theme.cursor;
      context.globalAlpha = 0.7;
      context.fillRect(buffer.cursorX * CELL_WIDTH, buffer.cursorY * CELL_HEIGHT, CELL_WIDTH, CELL_HEIGHT);
      context.globalAlpha = 1;
    }
  }
}

/** The part of the screen with something on it, so that its letters are as large as can be. */
function used(terminal: Terminal): { cols: number; rows: number } {
  const buffer = terminal.buffer.active;
  let rows = Math.max(8, buffer.cursorY + 1);
  let cols = 64;
  for (let row = 0; row < terminal.rows; row += 1) {
    const length = buffer.getLine(buffer.viewportY + row)?.translateToString(true).length ?? 0;
    if (!length) continue;
    rows = Math.max(rows, row + 1);
    cols = Math.max(cols, length + 1);
  }
  return { cols: Math.min(cols, terminal.cols), rows: Math.min(rows, terminal.rows) };
}

const NAMES = [
  'black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white',
  'brightBlack', 'brightRed', 'brightGreen', 'brightYellow', 'brightBlue', 'brightMagenta', 'brightCyan', 'brightWhite',
] as const;

function colour(theme: Theme, value: number, rgb: boolean, palette: boolean, bold: boolean): string | null {
  if (rgb) return `rgb(${(value >> 16) & 255} ${(value >> 8) & 255} ${value & 255})`;
  if (!palette) return null;
  if (value < 16) return theme[NAMES[bold && value < 8 ? value + 8 : value]!];
  if (value >= 232) {
    const grey = 8 + (value - 232) * 10;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const level = (n: number) => (n === 0 ? 0 : 55 + n * 40);
  const index = value - 16;
  return `rgb(${level(Math.floor(index / 36))} ${level(Math.floor(index / 6) % 6)} ${level(index % 6)})`;
}
