// Where a hit's words are in its text.

export interface Mark {
  text: string;
  hit: boolean;
}

const LETTERS = /[\p{L}\p{N}_]+/gu;

/** Words that are in every text and say nothing about a hit. */
const COMMON = new Set(
  'a an and are as at be but by did do does for from had has have how i in is it its me my of on or our so that the their then there these they this to was we were what when where which who why will with you your'.split(' '),
);

/** The words of a question that are worth marking. A question of common words alone has only those. */
export function terms(query: string): string[] {
  const found = [...new Set(query.toLowerCase().match(LETTERS) ?? [])].filter((word) => word.length > 1);
  const telling = found.filter((word) => !COMMON.has(word));
  return telling.length ? telling : found;
}

/** The words a reason names: `matches login, test; superseded …`. */
export function reasonTerms(reason: string | undefined): string[] {
  const match = /^matches\s+(.*?)(?:;|$)/i.exec(reason ?? '');
  return match ? terms(match[1]!) : [];
}

const ENDING = /(?:ations?|ments?|ings?|ions?|ers?|ed|es|e|s|d|ly)$/;

const isEnding = (rest: string) => rest.replace(ENDING, '') === '';

/** Whether a word of the text is meant by a term: the same, or one grown from the other, as `fail` and `failed`. */
export function meets(word: string, term: string): boolean {
  if (word === term) return true;
  if (term.length < 3 || word.length < 3) return false;
  if (word.startsWith(term)) return term.length >= 5 || isEnding(word.slice(term.length));
  const stem = term.replace(ENDING, '');
  return stem.length >= 3 && word.startsWith(stem) && (word === stem || isEnding(word.slice(stem.length)));
}

/** The text in pieces, those that match marked; from just before the first match when it is long. */
export function marked(text: string, wanted: string[], most = 420): Mark[] {
  const spans: [number, number][] = [];
  if (wanted.length) {
    for (const match of text.matchAll(LETTERS)) {
      const word = match[0].toLowerCase();
      if (wanted.some((term) => meets(word, term))) spans.push([match.index, match.index + match[0].length]);
      if (spans.length > 400) break;
    }
  }
  let from = 0;
  let to = text.length;
  if (text.length > most) {
    from = Math.max(0, densest(spans, most) - 60);
    if (from > 0) {
      const space = text.indexOf(' ', from);
      if (space >= 0 && space - from < 30) from = space + 1;
    }
    to = Math.min(text.length, from + most);
  }
  const pieces: Mark[] = [];
  const push = (piece: string, hit: boolean) => {
    if (piece) pieces.push({ text: piece, hit });
  };
  if (from > 0) push('… ', false);
  let at = from;
  for (const [start, stop] of spans) {
    if (start < at || stop > to) continue;
    push(text.slice(at, start), false);
    push(text.slice(start, stop), true);
    at = stop;
  }
  push(text.slice(at, to), false);
  if (to < text.length) push(' …', false);
  return pieces;
}

/** Where the window with the most matches begins. */
function densest(spans: [number, number][], width: number): number {
  let best = 0;
  let most = 0;
  for (let first = 0; first < spans.length; first += 1) {
    let last = first;
    while (last < spans.length && spans[last]![1] <= spans[first]![0] + width - 60) last += 1;
    if (last - first > most) {
      most = last - first;
      best = spans[first]![0];
    }
  }
  return best;
}
