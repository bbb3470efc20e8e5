import { useReducer, useRef } from 'preact/hooks';

import type { Block } from '../../events/block';
import type { EventLog } from '../../events/log';
import { guess, Row, type RowContext } from '../../events/rows';
import { count } from '../../format';
import type { Turn } from '../../shapes';
import { Age, Button, Empty, Problem, Skeleton, State } from '../../ui/parts';
import { Virtual } from '../../ui/virtual';
import { Writing } from './writing';

interface Props {
  log: EventLog;
  turns: Map<number, Turn>;
  /** Whether the agent is at work. */
  working: boolean;
  /** The agent's terminal and where it is, if it has one. */
  terminal: { id: string; agent: string; href: string } | null;
  answer: RowContext['answer'];
}

export function Events({ log, turns, working, terminal, answer }: Props) {
  const revision = log.revision.value;
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const context = useRef<RowContext>({ turns, answer, toggled: new Set(), drafts: new Map() });
  context.current.turns = turns;
  context.current.answer = answer;
  const follow = (following: boolean) => {
    if (log.following === following) return;
    log.following = following;
    if (following) void log.jumpToEnd();
    redraw(undefined);
  };
  if (log.failed.value) {
    return (
      <div class="events-loading">
        <Problem error={log.failed.value} again={() => location.reload()} />
      </div>
    );
  }
  if (log.loading.value && !log.blocks.length) {
    return (
      <div class="events-loading">
        <Skeleton lines={8} tall />
      </div>
    );
  }
  const waiting = [...turns.values()].filter((turn) => turn.state === 'queued' || (turn.state === 'running' && !log.blocks.some((b) => b.turn === turn.turn_index)));
  const running = [...turns.values()].find((turn) => turn.state === 'running');
  return (
    <div class="events">
      <Virtual<Block>
        items={log.blocks}
        keyOf={(block) => block.key}
        guess={guess}
        revision={revision}
        following={log.following}
        onFollow={follow}
        onTop={() => void log.loadOlder().catch(() => undefined)}
        label="Events of the session"
        row={(block) => (
          <Row block={block} version={block.version} context={context.current} turn={block.turn !== null ? turns.get(block.turn) : undefined} />
        )}
        header={
          log.older.value ? (
            <p class="older">
              <Button look="quiet" onClick={() => { follow(false); void log.loadOlder(); }}>
                Load what came before
              </Button>
            </p>
          ) : null
        }
        footer={
          <>
          {waiting.length ? (
            <div class="waiting">
              {waiting.map((turn) => (
                <div key={turn.turn_index} class={turn.state === 'running' ? 'prompt asked' : 'prompt queued'}>
                  <span class="soft">{turn.state === 'running' ? 'asked' : 'waits'}</span>
                  <p>{turn.prompt.slice(0, 2000)}</p>
                </div>
              ))}
            </div>
          ) : log.blocks.length <= 1 && !working ? (
            <Empty icon="now" title="Nothing has been said yet">
              <p>The agent is warm. Ask it something below.</p>
            </Empty>
          ) : null}
          {working ? (
            <div class="working">
              <State word="running" label="at work" />
              <Age at={running?.started_at} before="for " />
              {terminal ? <a class="prompt-more" href={terminal.href}>Watch its terminal</a> : null}
              {terminal ? <Writing key={terminal.id} id={terminal.id} agent={terminal.agent} /> : null}
            </div>
          ) : null}
          <div class="events-end" />
          </>
        }
      />
      {log.following ? null : (
        <button type="button" class="to-end" onClick={() => follow(true)}>
          {log.missed.value ? `${count(log.missed.value)} new · to the latest` : 'To the latest'}
        </button>
      )}
    </div>
  );
}
