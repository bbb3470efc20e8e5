// An agent's words as text with its code apart. Nothing in them is ever read as HTML.
import type { JSX } from 'preact';

/** Pieces of a text: prose, and what stands between fences. */
export interface Piece {
  code: boolean;
  language: string;
  text: string;
}

export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let prose: string[] = [];
  let code: string[] | null = null;
  let fence = '';
  let language = '';
  const flush = () => {
    const joined = prose.join('\n').replace(/^\n+|\n+$/g, '');
    if (joined) found.push({ code: false, language: '', text: joined });
    prose = [];
  };
  for (const line of text.split('\n')) {
    const match = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/.exec(line);
    if (code === null) {
      if (match) {
        flush();
        code = [];
        fence = match[1]!;
        language = match[2]!;
      } else prose.push(line);
    } else if (match && match[1]!.startsWith(fence) && !match[2]) {
      found.push({ code: true, language, text: code.join('\n') });
      code = null;
    } else code.push(line);
  }
  // A fence that is not closed yet is still being said.
  if (code !== null) found.push({ code: true, language, text: code.join('\n') });
  flush();
  return found;
}

/** A paragraph, a heading, a list or a table of a prose piece. */
export type Block =
  | { kind: 'text'; text: string }
  | { kind: 'heading'; level: number; text: string }
  | { kind: 'list'; items: { mark: string; depth: number; text: string }[] }
  | { kind: 'table'; head: string[]; rows: string[][] };

const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const cells = (line: string) => {
  const inner = line.trim().replace(/^\||\|$/g, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
};

/** What a prose piece is made of. What has no form of its own stays as it was written. */
export function blocks(text: string): Block[] {
  const found: Block[] = [];
  const lines = text.split('\n');
  let plain: string[] = [];
  const flush = () => {
    const joined = plain.join('\n').replace(/^\n+|\n+$/g, '');
    if (joined) found.push({ kind: 'text', text: joined });
    plain = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at]!;
    const heading = HEADING.exec(line);
    if (heading) {
      flush();
      found.push({ kind: 'heading', level: heading[1]!.length, text: heading[2]! });
    } else if (ITEM.test(line)) {
      flush();
      const items: { mark: string; depth: number; text: string }[] = [];
      for (; at < lines.length; at += 1) {
        const item = ITEM.exec(lines[at]!);
        if (item) {
          const depth = Math.min(3, Math.floor(item[1]!.replaceAll('\t', '  ').length / 2));
          items.push({ mark: /\d/.test(item[2]!) ? item[2]! : '•', depth, text: item[3]! });
        } else if (/^\s+\S/.test(lines[at]!)) items.at(-1)!.text += `\n${lines[at]!.trim()}`;
        else break;
      }
      at -= 1;
      found.push({ kind: 'list', items });
    } else if (line.includes('|') && RULE.test(lines[at + 1] ?? '') && (lines[at + 1] ?? '').includes('|')) {
      flush();
      const head = cells(line);
      const rows: string[][] = [];
      for (at += 2; at < lines.length && lines[at]!.includes('|'); at += 1) {
        const row = cells(lines[at]!);
        rows.push(head.map((_, column) => row[column] ?? ''));
      }
      at -= 1;
      found.push({ kind: 'table', head, rows });
    } else plain.push(line);
  }
  flush();
  return found;
}

/** Words in `code`, **strong** and links; all else as it is. Only addresses of the web are links. */
function inline(text: string): (string | JSX.Element)[] {
  const parts: (string | JSX.Element)[] = [];
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>()"'`]*[^\s<>()"'`.,;:!?])/g;
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) parts.push(text.slice(from, match.index));
    const [, code, strong, name, named, bare] = match;
    const address = named ?? bare ?? '';
    if (code) parts.push(<code key={match.index}>{code}</code>);
    else if (strong) parts.push(<strong key={match.index}>{strong}</strong>);
    else {
      parts.push(
        <a key={match.index} href={address} target="_blank" rel="noreferrer noopener">
          {name ?? address}
        </a>,
      );
    }
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

function Part({ block }: { block: Block }) {
  switch (block.kind) {
    case 'heading':
      return <p class={`prose-heading level-${Math.min(3, block.level)}`}>{inline(block.text)}</p>;
    case 'list':
      return (
        <ul class="prose-list">
          {block.items.map((item, at) => (
            <li key={at} class={`depth-${item.depth}`}>
              <span class="prose-mark">{item.mark}</span>
              <span>{inline(item.text)}</span>
            </li>
          ))}
        </ul>
      );
    case 'table':
      return (
        <div class="prose-table" tabIndex={0}>
          <table>
            <thead>
              <tr>{block.head.map((cell, at) => <th key={at}>{inline(cell)}</th>)}</tr>
            </thead>
            <tbody>
              {block.rows.map((row, at) => (
                <tr key={at}>{row.map((cell, column) => <td key={column}>{inline(cell)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    default:
      return <p>{inline(block.text)}</p>;
  }
}

export function Prose({ text }: { text: string }) {
  return (
    <div class="prose">
      {pieces(text).map((piece, at) =>
        piece.code ? (
          <pre key={at} tabIndex={0} data-language={piece.language || undefined}>
            <code>{piece.text}</code>
          </pre>
        ) : (
          blocks(piece.text).map((block, part) => <Part key={`${at}-${part}`} block={block} />)
        ),
      )}
    </div>
  );
}
