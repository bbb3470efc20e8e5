import { useEffect, useRef, useState } from 'preact/hooks';

import { get, post, query } from '../../api';
import { many, place, shortId, saidBy } from '../../format';
import { marked } from '../../highlight';
import type { Hit } from '../../shapes';
import { confirm, Dialog } from '../../ui/dialog';
import { attempt, offer, say } from '../../ui/toast';
import { useLoad } from '../../ui/load';
import { Button, Copy, Problem, Skeleton, When } from '../../ui/parts';

interface Props {
  hit: Hit;
  words: string[];
  onClose: () => void;
  /** Something was corrected or forgotten. */
  onChanged: () => void;
}

/** One hit and what was said around it. */
export function Detail({ hit, words, onClose, onChanged }: Props) {
  const [original, setOriginal] = useState<string | null>(null);
  const [correcting, setCorrecting] = useState(false);
  // The routes that change or unseal a turn are for the owner's memory.
  const own = !hit.app;
  const around = `/admin/memory/timeline${query({ app: hit.app, session_id: hit.session_id, project: hit.session_id ? '' : hit.project, around: hit.record_id, limit: 20 })}`;
  const timeline = useLoad(around, (abort) => get<{ turns: Hit[] }>(around, abort));
  const here = useRef<HTMLLIElement>(null);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    if (!here.current || !list.current) return;
    list.current.scrollTop = here.current.offsetTop - list.current.offsetTop - 40;
  }, [timeline.value]);

  const forget = (what: 'record' | 'session') =>
    confirm({
      title: what === 'record' ? 'Forget this turn?' : 'Forget the whole session?',
      words: (
        <p>
          It is hidden at once, and neither a hook nor an import brings it back. It is erased after a day. Until then you can undo this.
        </p>
      ),
      yes: 'Forget',
      danger: true,
      act: async () => {
        const body = what === 'record' ? { record_id: hit.record_id } : { session_id: hit.session_id };
        const { forgotten } = await post<{ forgotten: number }>('/admin/memory/forget', body);
        offer(`${many(forgotten, 'turn')} forgotten.`, {
          name: 'Undo',
          act: async () => {
            const { restored } = await post<{ restored: number }>('/admin/memory/restore', body);
            say(`${many(restored, 'turn')} restored.`);
            onChanged();
          },
        });
        onChanged();
      },
    });

  return (
    <aside class="detail" aria-label="The chosen turn">
      <header>
        <div>
          <span class={`who ${hit.role}`}>{saidBy(hit)}</span> <When at={hit.ts} /> {hit.app ? <span class="chip gold">app {hit.app}</span> : null}
          <p class="soft" title={hit.project ?? ''}>
            {[place(hit.project), hit.client, hit.session_id ? `session ${shortId(hit.session_id)}` : ''].filter(Boolean).join(' · ')}
          </p>
        </div>
        <Button icon="close" look="quiet" aria-label="Close the detail" data-escape onClick={onClose} />
      </header>
      <div class="detail-text" tabIndex={0} role="group" aria-label="Its text">
        {original !== null ? original : marked(hit.text, words, 20_000).map((piece, at) => (piece.hit ? <mark key={at}>{piece.text}</mark> : piece.text))}
      </div>
      <div class="detail-actions">
        {own ? (
          <Button icon="pen" onClick={() => setCorrecting(true)}>
            Correct
          </Button>
        ) : null}
        {own && hit.masked ? (
          original === null ? (
            <Button
              icon="eye"
              onClick={() =>
                attempt(async () => {
                  setOriginal((await post<{ text: string }>('/admin/memory/unseal', { record_id: hit.record_id })).text);
                })
              }
            >
              Unseal
            </Button>
          ) : (
            <Button icon="lock" onClick={() => setOriginal(null)}>
              Seal again
            </Button>
          )
        ) : null}
        <Copy text={original ?? hit.text} />
        {own ? (
          <Button icon="trash" look="danger" onClick={() => forget('record')}>
            Forget
          </Button>
        ) : (
          <span class="soft">You can only read an app’s memory.</span>
        )}
        {own && hit.session_id ? (
          <Button look="quiet" onClick={() => forget('session')}>
            Forget the session
          </Button>
        ) : null}
      </div>
      <h3>Context</h3>
      {timeline.error ? <Problem error={timeline.error} again={timeline.again} /> : null}
      {!timeline.value && !timeline.error ? <Skeleton lines={4} /> : null}
      <ol class="timeline" ref={list} tabIndex={0} aria-label="Turns around it">
        {(timeline.value?.turns ?? []).map((turn) => {
          const self = turn.record_id === hit.record_id;
          return (
            <li key={turn.record_id} ref={self ? here : null} class={self ? 'here' : ''} aria-current={self ? 'true' : undefined}>
              <span class={`who ${turn.role}`}>{saidBy(turn)}</span>
              <p>{turn.text.length > 600 ? `${turn.text.slice(0, 600)} …` : turn.text}</p>
              <small>
                <When at={turn.ts} />
              </small>
            </li>
          );
        })}
      </ol>
      {correcting ? (
        <Correct
          hit={hit}
          onClose={() => setCorrecting(false)}
          onDone={() => {
            setCorrecting(false);
            onChanged();
          }}
        />
      ) : null}
    </aside>
  );
}

function Correct({ hit, onClose, onDone }: { hit: Hit; onClose: () => void; onDone: () => void }) {
  const [text, setText] = useState(hit.text);
  return (
    <Dialog title="Correct" onClose={onClose} wide>
      <form
        class="form"
        onSubmit={async (event) => {
          event.preventDefault();
          const done = await attempt(() => post('/admin/memory/correct', { record_id: hit.record_id, text }));
          if (done) {
            say('Corrected. The old text stays, ranked lower.');
            onDone();
          }
        }}
      >
        <label>
          As it should be remembered
          <textarea rows={9} value={text} autofocus onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <div class="dialog-actions">
          <Button look="quiet" onClick={onClose}>
            Leave it
          </Button>
          <button type="submit" class="button primary" disabled={!text.trim() || text === hit.text}>
            Correct
          </button>
        </div>
      </form>
    </Dialog>
  );
}
