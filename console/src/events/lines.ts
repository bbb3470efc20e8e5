// The lines in which two texts differ.

export type Line =
  | { kind: 'kept' | 'removed' | 'added'; text: string }
  /** Lines that are in both texts and are left out. */
  | { kind: 'gap'; count: number };

/** Number of lines around a change that are shown. */
const CONTEXT = 3;
/** Number of pairs of lines that are compared at most. Larger parts count as replaced whole. */
const MAX_PAIRS = 400_000;

function split(text: string): string[] {
  if (!text) return [];
  const lines = text.split('\n');
  // A line break at the end ends a line; it begins none.
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

/** Compares two texts line by line. `null` stands for a file that was not there. */
export function compare(before: string | null, after: string): Line[] {
  const old = split(before ?? '');
  const next = split(after);
  let head = 0;
  while (head < old.length && head < next.length && old[head] === next[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < next.length - head && old[old.length - 1 - tail] === next[next.length - 1 - tail]) tail += 1;
  const kept = (text: string): Line => ({ kind: 'kept', text });
  const lines = [
    ...old.slice(0, head).map(kept),
    ...changes(old.slice(head, old.length - tail), next.slice(head, next.length - tail)),
    ...old.slice(old.length - tail).map(kept),
  ];
  return fold(lines);
}

/** The shortest way from one list of lines to the other, by their longest common subsequence. */
function changes(old: string[], next: string[]): Line[] {
  const removed = (text: string): Line => ({ kind: 'removed', text });
  const added = (text: string): Line => ({ kind: 'added', text });
  if (!old.length || !next.length || old.length * next.length > MAX_PAIRS) return [...old.map(removed), ...next.map(added)];
  const width = next.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = next.length - 1; column >= 0; column -= 1) {
      const at = row * width + column;
      lengths[at] = old[row] === next[column] ? lengths[at + width + 1]! + 1 : Math.max(lengths[at + width]!, lengths[at + 1]!);
    }
  }
  const lines: Line[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < next.length) {
    const at = row * width + column;
    if (row < old.length && column < next.length && old[row] === next[column]) {
      lines.push({ kind: 'kept', text: old[row]! });
      row += 1;
      column += 1;
    } else if (column >= next.length || (row < old.length && lengths[at + width]! >= lengths[at + 1]!)) {
      lines.push(removed(old[row]!));
      row += 1;
    } else {
      lines.push(added(next[column]!));
      column += 1;
    }
  }
  return lines;
}

/** Leaves out what is far from every change. */
function fold(lines: Line[]): Line[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.kind === 'kept') return;
    near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
  });
  const folded: Line[] = [];
  lines.forEach((line, at) => {
    if (near[at]) {
      folded.push(line);
      return;
    }
    const last = folded.at(-1);
    if (last?.kind === 'gap') last.count += 1;
    else folded.push({ kind: 'gap', count: 1 });
  });
  return folded;
}

/** How many lines came and went. */
export function tally(lines: Line[]): { added: number; removed: number } {
  const number = (kind: Line['kind']) => lines.filter((line) => line.kind === kind).length;
  return { added: number('added'), removed: number('removed') };
}
