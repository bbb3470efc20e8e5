// Hits of the memory, those of one session together.
import { useState } from 'preact/hooks';

import { many, place, shortId, saidBy } from '../../format';
import { marked, reasonTerms } from '../../highlight';
import type { Hit } from '../../shapes';
import { Icon } from '../../ui/icons';
import { When } from '../../ui/parts';

/** Number of hits of a session that are shown at first. */
const FEW = 4;

interface Props {
  hits: Hit[];
  words: string[];
  /** The record that is open. */
  chosen: string | null;
  onChoose: (hit: Hit) => void;
}

export function Group({ hits, words, chosen, onChoose }: Props) {
  const [all, setAll] = useState(false);
  const first = hits[0]!;
  const shown = all || hits.length <= FEW + 1 ? hits : hits.filter((hit, at) => at < FEW || hit.record_id === chosen);
  const hidden = hits.length - shown.length;
  return (
    <li class="hit-group">
      <h2 class="group-head">
        <span title={first.project ?? undefined}>{place(first.project) || 'No project'}</span>
        {first.app ? <span class="chip gold">app {first.app}</span> : null}
        {first.client ? <span class="soft">{first.client}</span> : null}
        {first.session_id ? <span class="mono soft">{shortId(first.session_id)}</span> : null}
        {hits.length > 1 ? <span class="push soft">{many(hits.length, 'turn')}</span> : null}
      </h2>
      <ul>
        {shown.map((hit) => (
          <HitRow key={hit.record_id} hit={hit} words={words} here={hit.record_id === chosen} onChoose={() => onChoose(hit)} />
        ))}
      </ul>
      {hidden ? (
        <button type="button" class="button quiet" onClick={() => setAll(true)}>
          {many(hidden, 'more turn')} of this session
        </button>
      ) : null}
    </li>
  );
}

function HitRow({ hit, words, here, onChoose }: { hit: Hit; words: string[]; here: boolean; onChoose: () => void }) {
  const wanted = [...new Set([...words, ...(words.length ? reasonTerms(hit.reason) : [])])];
  return (
    <li>
      <button type="button" data-item class={`hit${here ? ' here' : ''}${hit.superseded ? ' superseded' : ''}`} aria-current={here ? 'true' : undefined} onClick={onChoose}>
        <span class="hit-head">
          <span class={`who ${hit.role}`}>{saidBy(hit)}</span>
          {hit.masked ? (
            <span class="chip" title="A secret in it is masked">
              <Icon name="lock" size={12} /> sealed
            </span>
          ) : null}
          {hit.superseded ? <span class="chip">corrected</span> : null}
          <span class="push soft">
            <When at={hit.ts} />
          </span>
        </span>
        <span class="hit-text">
          {marked(hit.text, wanted).map((piece, at) => (piece.hit ? <mark key={at}>{piece.text}</mark> : piece.text))}
        </span>
        {words.length && hit.reason ? <span class="hit-why">{hit.reason}</span> : null}
      </button>
    </li>
  );
}
