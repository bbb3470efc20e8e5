// An edit as its changed lines.
import { useMemo } from 'preact/hooks';

import { count, many } from '../format';
import type { Edit } from './detail';
import { compare, tally, type Line } from './lines';

/** Number of lines that are drawn at most. */
const MAX_LINES = 400;

export function Diff({ edit }: { edit: Edit }) {
  const lines = useMemo(() => compare(edit.before, edit.after), [edit.before, edit.after]);
  const { added, removed } = tally(lines);
  const shown = lines.slice(0, MAX_LINES);
  return (
    <figure class="diff">
      <figcaption>
        <span class="diff-path" title={edit.path}>{edit.path || 'A file'}</span>
        <span class="diff-tally">
          {edit.before === null ? <span>written whole</span> : null}
          <span class="diff-added">+{count(added)}</span>
          {edit.before === null ? null : <span class="diff-removed">−{count(removed)}</span>}
        </span>
      </figcaption>
      <div class="diff-lines" tabIndex={0} role="group" aria-label={`Changes of ${edit.path || 'a file'}`}>
        {shown.length ? shown.map((line, at) => <Row key={at} line={line} />) : <p class="diff-gap">No line changes.</p>}
        {lines.length > MAX_LINES ? <p class="diff-gap">{many(lines.length - MAX_LINES, 'more line')}</p> : null}
      </div>
    </figure>
  );
}

function Row({ line }: { line: Line }) {
  switch (line.kind) {
    case 'removed':
      return <del>{line.text || ' '}</del>;
    case 'added':
      return <ins>{line.text || ' '}</ins>;
    case 'kept':
      return <span>{line.text || ' '}</span>;
    case 'gap':
      return <p class="diff-gap">{many(line.count, 'unchanged line')}</p>;
  }
}
