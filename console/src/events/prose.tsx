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

/** Words in `code`, **strong** and headings; all else as it is. */
function inline(text: string): (string | JSX.Element)[] {
  const parts: (string | JSX.Element)[] = [];
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) parts.push(text.slice(from, match.index));
    parts.push(match[1] ? <code key={match.index}>{match[1]}</code> : <strong key={match.index}>{match[2]}</strong>);
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

export function Prose({ text }: { text: string }) {
  return (
    <div class="prose">
      {pieces(text).map((piece, at) =>
        piece.code ? (
          <pre key={at} data-language={piece.language || undefined}>
            <code>{piece.text}</code>
          </pre>
        ) : (
          <p key={at}>{inline(piece.text)}</p>
        ),
      )}
    </div>
  );
}
