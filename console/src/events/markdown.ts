// Markdown as agents write it, as a tree. All of it is text: there is no HTML, and only addresses of the web are links.
// Every part reads its text a bounded number of times, whatever an agent wrote.

export type Inline =
  | string
  | { kind: 'code'; text: string }
  | { kind: 'strong' | 'em' | 'del'; inside: Inline[] }
  /** `host` is set if the text does not say where the link goes. */
  | { kind: 'link'; address: string; host: string; inside: Inline[] };

export interface Item {
  /** Whether a task is done; null for an item that is no task. */
  done: boolean | null;
  blocks: Block[];
}

export type Block =
  | { kind: 'text' | 'code'; text: string }
  | { kind: 'heading'; level: number; text: string }
  /** `start` is the first number, or null for a list without numbers. */
  | { kind: 'list'; start: number | null; items: Item[] }
  | { kind: 'quote'; blocks: Block[] }
  | { kind: 'rule' }
  | { kind: 'table'; head: string[]; rows: string[][] };

/** How deep lists, quotes and emphasis nest. What is deeper stays as it was written. */
const MAX_DEPTH = 8;

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?\S)\s*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;
const TASK = /^\[([ xX])\]\s+/;
const DELIMITER_ROW = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;

export const blocks = (text: string): Block[] => parse(text.split('\n'), 0);

function parse(lines: string[], depth: number): Block[] {
  const found: Block[] = [];
  let plain: string[] = [];
  const add = (block: Block) => {
    if (plain.length) found.push({ kind: 'text', text: plain.join('\n') });
    plain = [];
    found.push(block);
  };
  const nests = depth < MAX_DEPTH;
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]!;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = nests ? ITEM.exec(line) : null;
    if (!line.trim()) {
      if (plain.length) found.push({ kind: 'text', text: plain.join('\n') });
      plain = [];
      at += 1;
    } else if (fence) {
      // A fence that is not closed yet is still being said.
      const end = after(lines, at + 1, (one) => !closes(one, fence[1]!));
      add({ kind: 'code', text: lines.slice(at + 1, end).join('\n') });
      at = end + 1;
    } else if (heading) {
      add({ kind: 'heading', level: heading[1]!.length, text: heading[2]!.replace(/\s#+$/, '') });
      at += 1;
    } else if (RULE.test(line)) {
      add({ kind: 'rule' });
      at += 1;
    } else if (nests && QUOTE.test(line)) {
      const end = after(lines, at, (one) => QUOTE.test(one));
      add({ kind: 'quote', blocks: parse(lines.slice(at, end).map((one) => QUOTE.exec(one)![1]!), depth + 1) });
      at = end;
    } else if (item) {
      const items: Item[] = [];
      const start = numberOf(item[2]!);
      const end = list(lines, at, depth, items);
      add({ kind: 'list', start, items });
      at = end;
    } else if (line.includes('|') && lines[at + 1]?.includes('|') && DELIMITER_ROW.test(lines[at + 1]!.trim())) {
      const head = cells(line);
      const end = after(lines, at + 2, (one) => one.includes('|'));
      const rows = lines.slice(at + 2, end).map((one) => {
        const row = cells(one);
        return head.map((_, column) => row[column] ?? '');
      });
      add({ kind: 'table', head, rows });
      at = end;
    } else {
      plain.push(line);
      at += 1;
    }
  }
  if (plain.length) found.push({ kind: 'text', text: plain.join('\n') });
  return found;
}

/** The first line from here on for which this no longer holds. */
function after(lines: string[], from: number, holds: (line: string) => boolean): number {
  let at = from;
  while (at < lines.length && holds(lines[at]!)) at += 1;
  return at;
}

const closes = (line: string, mark: string) => /^\s{0,3}(`+|~+)\s*$/.exec(line)?.[1]?.startsWith(mark) ?? false;

const numberOf = (mark: string) => (/\d/.test(mark) ? parseInt(mark, 10) : null);

const spaced = (line: string) => line.replace(/^\s+/, (lead) => lead.replaceAll('\t', '  '));

const indentOf = (line: string) => /^\s*/.exec(spaced(line))![0].length;

/** Reads the items of the list that begins at a line, and returns the line after it. */
function list(lines: string[], from: number, depth: number, items: Item[]): number {
  const indent = indentOf(lines[from]!);
  const numbered = numberOf(ITEM.exec(lines[from]!)![2]!) !== null;
  let at = from;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]!);
    const here = indentOf(lines[at]!);
    if (!item || RULE.test(lines[at]!) || (numberOf(item[2]!) !== null) !== numbered || here < indent) break;
    const task = TASK.exec(item[3]!);
    const body = [task ? item[3]!.slice(task[0].length) : item[3]!];
    const width = here + item[2]!.length + 1;
    for (at += 1; at < lines.length; ) {
      // Empty lines belong to an item that goes on after them.
      const next = after(lines, at, (one) => !one.trim());
      if (next >= lines.length || indentOf(lines[next]!) < here + 2) {
        if (next < lines.length && ITEM.test(lines[next]!) && indentOf(lines[next]!) >= indent) at = next;
        break;
      }
      for (; at <= next; at += 1) body.push(spaced(lines[at]!).slice(Math.min(indentOf(lines[at]!), width)));
    }
    items.push({ done: task ? task[1] !== ' ' : null, blocks: parse(body, depth + 1) });
  }
  return at;
}

function cells(line: string): string[] {
  const inner = line.trim().replace(/^\||\|$/g, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
}

/** An emphasis or a link that is not closed yet. */
interface Frame {
  mark: string;
  inside: Inline[];
}

const KINDS = { '**': 'strong', __: 'strong', '*': 'em', _: 'em', '~~': 'del' } as const;

const TOKEN = /\\([\\`*_~[\]<>|#])|(`+)|<(https?:\/\/[^\s<>]+)>|(https?:\/\/[^\s<>()"'`*]*[^\s<>()"'`*.,;:!?_~[\]])|(\*{1,3}|_{1,3}|~~)|(!?\[)|(\])/g;
const TARGET = /\(\s*<?(https?:\/\/(?:[^\s()<>]|\([^\s()<>]*\))+)>?(?:\s+"[^"\n]*")?\s*\)/y;

/** The words of a paragraph, a heading or a cell. */
export function inline(text: string): Inline[] {
  const frames: Frame[] = [{ mark: '', inside: [] }];
  const top = () => frames.at(-1)!.inside;
  const say = (words: string) => {
    const last = top();
    if (typeof last.at(-1) === 'string') last.push(`${last.pop()}${words}`);
    else if (words) last.push(words);
  };
  // A mark that nothing closes is text.
  const drop = () => {
    const frame = frames.pop()!;
    say(frame.mark);
    for (const one of frame.inside) typeof one === 'string' ? say(one) : top().push(one);
  };
  const find = (holds: (frame: Frame) => boolean) => frames.findLastIndex(holds);
  const open = (mark: string) => (frames.length < MAX_DEPTH ? frames.push({ mark, inside: [] }) : say(mark));
  const unclosed = new Set<number>();
  const token = new RegExp(TOKEN);
  let from = 0;
  for (let match = token.exec(text); match; match = token.exec(text)) {
    say(text.slice(from, match.index));
    from = token.lastIndex;
    const [whole, escaped, ticks, angle, bare, run, bracket] = match;
    const address = angle ?? bare;
    if (escaped) say(escaped);
    else if (ticks) {
      const end = unclosed.has(ticks.length) ? -1 : closing(text, from, ticks.length);
      if (end < 0) {
        unclosed.add(ticks.length);
        say(ticks);
      } else {
        const code = text.slice(from, end);
        top().push({ kind: 'code', text: /^ .*[^ ].* $/s.test(code) ? code.slice(1, -1) : code });
        from = end + ticks.length;
      }
    } else if (address) {
      const link = find((frame) => frame.mark.endsWith('[')) < 0 ? linkTo(address, [address]) : null;
      if (link) top().push(link);
      else say(whole);
    } else if (run) emphasise(run, text[match.index - 1] ?? ' ', text[from] ?? ' ', { frames, find, drop, open, say });
    else if (bracket) open(bracket);
    else {
      TARGET.lastIndex = from;
      const target = TARGET.exec(text);
      const at = find((frame) => frame.mark.endsWith('['));
      while (at > 0 && frames.length - 1 > at) drop();
      const link = target && at > 0 ? linkTo(target[1]!, frames[at]!.inside) : null;
      if (link) {
        frames.pop();
        top().push(link);
        from = TARGET.lastIndex;
      } else {
        if (at > 0) drop();
        say(whole);
      }
    }
    token.lastIndex = from;
  }
  say(text.slice(from));
  while (frames.length > 1) drop();
  return top();
}

interface Stack {
  frames: Frame[];
  find(holds: (frame: Frame) => boolean): number;
  drop(): void;
  open(mark: string): unknown;
  say(words: string): void;
}

/** Closes what a run of marks closes, and opens what is left of it. */
function emphasise(run: string, before: string, next: string, { frames, find, drop, open, say }: Stack): void {
  const inWord = (character: string) => /\w/.test(character);
  let left = run;
  const fits = (mark: string) =>
    left.startsWith(mark) && (mark.length === 2 && left[0] !== '_' ? true : !inWord(next));
  while (left && !/\s/.test(before)) {
    const at = find((frame) => frame.mark !== '' && fits(frame.mark) && frame.inside.length > 0);
    if (at <= 0 || frames.slice(at).some((frame) => frame.mark.endsWith('['))) break;
    while (frames.length - 1 > at) drop();
    const { mark, inside } = frames.pop()!;
    frames.at(-1)!.inside.push({ kind: KINDS[mark as keyof typeof KINDS], inside });
    left = left.slice(mark.length);
  }
  while (left) {
    const mark = left.length === 1 ? left : left.slice(0, 2);
    // One mark between letters or in a path is no emphasis: 2*3*4, snake_case, src/*.ts.
    const opens = !/\s/.test(next) && (mark.length === 2 && mark !== '__' ? true : !/[\w/.]/.test(before));
    if (opens) open(mark);
    else say(mark);
    left = left.slice(mark.length);
  }
}

/** Where a code span with this number of backticks ends, or -1. */
function closing(text: string, from: number, ticks: number): number {
  for (let at = text.indexOf('`', from); at >= 0; ) {
    let end = at;
    while (text[end] === '`') end += 1;
    if (end - at === ticks) return at;
    at = text.indexOf('`', end);
  }
  return -1;
}

const plainOf = (nodes: Inline[]): string =>
  nodes.map((node) => (typeof node === 'string' ? node : node.kind === 'code' ? node.text : plainOf(node.inside))).join('');

const hasLink = (nodes: Inline[]): boolean =>
  nodes.some((node) => typeof node !== 'string' && node.kind !== 'code' && (node.kind === 'link' || hasLink(node.inside)));

/** A link with its host, unless its text is the address. */
function linkTo(address: string, words: Inline[]): Inline | null {
  if (!URL.canParse(address)) return null;
  const url = new URL(address);
  const said = plainOf(words).trim() || address;
  const inside = words.length && !hasLink(words) ? words : [said];
  const bare = (one: string) => one.replace(/^https?:\/\//, '').replace(/\/$/, '');
  // What stands before an @ looks like a host, and is none; letters of other alphabets look like those of a known name.
  const honest = bare(said) === bare(address) && !url.username && !url.password && said.toLowerCase().includes(url.host);
  return { kind: 'link', address: url.href, host: honest ? '' : url.host, inside };
}
