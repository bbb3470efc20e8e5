// Blocks as rows of the page.
import { memo } from 'preact/compat';
import { useState } from 'preact/hooks';

import { count, dollars, span } from '../format';
import type { Turn } from '../shapes';
import { Icon } from '../ui/icons';
import { Button, State, When } from '../ui/parts';
import type { AskBlock, Block, EndBlock, NoteBlock, Option, PlanBlock, RawBlock, ToolBlock } from './block';
import { contentOf, fieldsOf, Inputs } from './form';
import type { Json } from './json';
import { Prose } from './prose';

export interface RowContext {
  turns: Map<number, Turn>;
  answer: (request: string, option: string, content?: Json) => Promise<unknown>;
  /** Which folded rows are open; kept here, because rows leave the page while they are out of sight. */
  open: Set<string>;
  /** What was typed into forms, by request. */
  drafts: Map<string, Json>;
}

export function guess(block: Block): number {
  switch (block.kind) {
    case 'text':
    case 'user':
      return 36 + Math.ceil(block.text.length / 90) * 22;
    case 'thought':
      return 30 + Math.ceil(block.text.length / 100) * 19;
    case 'turn':
      return 110;
    case 'ask':
      return 130;
    case 'plan':
      return 40 + block.entries.length * 26;
    case 'tool':
      return 44;
    default:
      return 40;
  }
}

interface Props {
  block: Block;
  version: number;
  context: RowContext;
  /** The prompt of a turn may come later than its first event. */
  turn: Turn | undefined;
}

export const Row = memo(
  function Row({ block, context, turn }: Props) {
    switch (block.kind) {
      case 'turn':
        return <TurnHead number={block.turn} turn={turn} at={block.at} />;
      case 'text':
        return (
          <div class={block.continues ? 'said continues' : 'said'}>
            <Prose text={block.text} />
          </div>
        );
      case 'thought':
        return (
          <div class={block.continues ? 'thought continues' : 'thought'}>
            <Prose text={block.text} />
          </div>
        );
      case 'user':
        return (
          <div class="repeated">
            <Prose text={block.text} />
          </div>
        );
      case 'tool':
        return <Tool version={block.version} block={block} context={context} />;
      case 'plan':
        return <Plan version={block.version} block={block} />;
      case 'ask':
        return <Ask version={block.version} block={block} context={context} />;
      case 'end':
        return <End version={block.version} block={block} turn={turn} />;
      case 'note':
        return <Note version={block.version} block={block} />;
      case 'raw':
        return <Raw version={block.version} block={block} context={context} />;
    }
  },
  (a, b) => a.block === b.block && a.version === b.version && a.turn === b.turn,
);

function TurnHead({ number, turn, at }: { number: number | null; turn: Turn | undefined; at: string | null }) {
  return (
    <div class="turn-head">
      <div class="turn-rule">
        <span>Turn {number}</span>
        <When at={turn?.started_at ?? turn?.queued_at ?? at} />
      </div>
      {turn ? (
        <div class="prompt">
          <Prose text={turn.prompt.length > 8000 ? `${turn.prompt.slice(0, 8000)}…` : turn.prompt} />
        </div>
      ) : null}
    </div>
  );
}

/** A block changes in place: only its version tells that it is another. */
interface Of<T> {
  block: T;
  version: number;
}

/** A row that opens. */
function useOpen(context: RowContext, key: string): [boolean, () => void] {
  const [open, setOpen] = useState(context.open.has(key));
  return [
    open,
    () => {
      if (open) context.open.delete(key);
      else context.open.add(key);
      setOpen(!open);
    },
  ];
}

function Tool({ block, context }: Of<ToolBlock> & { context: RowContext }) {
  const [open, toggle] = useOpen(context, block.key);
  const hint = block.input.split('\n', 1)[0] ?? '';
  const more = block.title && hint && !block.title.includes(hint) ? hint : '';
  return (
    <div class={open ? 'tool open' : 'tool'}>
      <button type="button" class="tool-head" aria-expanded={open} onClick={toggle}>
        <span class="fold">
          <Icon name="chevron" size={14} />
        </span>
        <span class="tool-name">{block.title || block.sort || 'tool'}</span>
        <span class="tool-hint">{more.startsWith('{') ? '' : more}</span>
        <State word={block.status} />
      </button>
      {open ? (
        <div class="tool-body">
          {block.places.length ? <p class="places">{block.places.join('  ')}</p> : null}
          {block.input ? <pre aria-label="Input">{block.input}</pre> : null}
          {block.output ? <pre class="output" aria-label="Output">{block.output}</pre> : null}
          {!block.input && !block.output ? <p class="soft">It has said nothing about itself.</p> : null}
        </div>
      ) : null}
    </div>
  );
}

function Plan({ block }: Of<PlanBlock>) {
  return (
    <div class="plan">
      <h4>Plan</h4>
      <ul>
        {block.entries.map((entry, at) => (
          <li key={at} class={entry.status}>
            <span class="plan-mark" aria-hidden="true" />
            {entry.content}
            <span class="offstage">, {entry.status.replaceAll('_', ' ')}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Ask({ block, context }: Of<AskBlock> & { context: RowContext }) {
  const [sent, setSent] = useState(false);
  // Only the first rendering reads it: the inputs keep what is typed.
  const [draft] = useState(context.drafts.get(block.request));
  if (block.status !== 'asked') {
    // What the policy answered by itself was never a question to anyone.
    const option = block.options.find((one) => one.option === block.answer);
    const words = block.by === 'policy' ? 'by the session’s rule' : block.by === 'timeout' ? 'nobody answered in time' : block.by === 'cancel' ? 'cancelled' : '';
    return (
      <div class="ask-over">
        <Icon name="lock" size={15} />
        <span>
          {block.title ? <strong>{block.title}</strong> : 'A permission'}: {option?.name ?? block.answer ?? 'not allowed'}
          {words ? <span class="soft"> · {words}</span> : null}
        </span>
      </div>
    );
  }
  const fields = block.form ? fieldsOf(block.form) : null;
  const send = async (option: string, content?: Json) => {
    setSent(true);
    await context.answer(block.request, option, content);
    setSent(false);
  };
  const sends = (option: Option) => fields !== null && option.kind === 'allow_once';
  return (
    <div class="ask" role="group" aria-label={fields ? `It asks: ${block.title}` : `May it? ${block.title}`}>
      <div class="ask-words">
        <Icon name="lock" />
        <div>
          <span class="ask-title">{fields ? 'The agent asks' : 'The agent asks whether it may'}</span>
          <strong>{block.title || 'go on'}</strong>
        </div>
      </div>
      <form
        onInput={(event) => {
          if (fields) context.drafts.set(block.request, contentOf(fields, new FormData(event.currentTarget)));
        }}
        onSubmit={(event) => {
          event.preventDefault();
          const option = block.options.find(sends);
          if (option && fields) void send(option.option, contentOf(fields, new FormData(event.currentTarget)));
        }}
      >
        {fields ? <Inputs fields={fields} request={block.request} draft={draft} /> : null}
        <div class="ask-buttons">
          {block.options.map((option) => (
            <Button
              key={option.option}
              type={sends(option) ? 'submit' : 'button'}
              look={option.kind === 'allow_once' ? 'primary' : option.kind.startsWith('reject') ? 'danger' : 'plain'}
              disabled={sent}
              onClick={sends(option) ? undefined : () => send(option.option)}
            >
              {option.name || option.option}
            </Button>
          ))}
        </div>
      </form>
    </div>
  );
}

function End({ block, turn }: Of<EndBlock> & { turn: Turn | undefined }) {
  const duration = block.duration ?? (turn?.started_at && turn.ended_at ? Date.parse(turn.ended_at) - Date.parse(turn.started_at) : null);
  const usage = turn?.usage;
  const tokens = block.tokens ?? (usage ? usage.input_tokens + usage.output_tokens + usage.cached_read_tokens + usage.cached_write_tokens : null);
  const cost = block.cost ?? usage?.cost_usd ?? null;
  const error = block.error ?? turn?.error ?? null;
  const word = block.state === 'finished' && block.reason && block.reason !== 'end_turn' ? block.reason.replaceAll('_', ' ') : undefined;
  return (
    <div class="turn-end">
      {word ? <State word={block.state} label={word} /> : <State word={block.state} />}
      <span class="facts">
        {duration !== null ? <span>{span(duration)}</span> : null}
        {tokens ? <span>{count(tokens)} tokens</span> : null}
        {cost ? <span>{dollars(cost)}</span> : null}
      </span>
      {error ? <p class="turn-error">{error}</p> : null}
    </div>
  );
}

function Note({ block }: Of<NoteBlock>) {
  return (
    <div class={`note ${block.tone}`}>
      <span>{block.text}</span>
      <When at={block.at} />
    </div>
  );
}

function Raw({ block, context }: Of<RawBlock> & { context: RowContext }) {
  const [open, toggle] = useOpen(context, block.key);
  return (
    <div class={open ? 'tool raw open' : 'tool raw'}>
      <button type="button" class="tool-head" aria-expanded={open} onClick={toggle}>
        <span class="fold">
          <Icon name="chevron" size={14} />
        </span>
        <span class="tool-name">{block.title}</span>
      </button>
      {open ? (
        <div class="tool-body">
          <pre>{block.text}</pre>
        </div>
      ) : null}
    </div>
  );
}
