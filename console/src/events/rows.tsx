// Blocks as rows of the page.
import { memo } from 'preact/compat';
import { useState } from 'preact/hooks';

import { count, dollars, span } from '../format';
import type { Turn } from '../shapes';
import { Icon } from '../ui/icons';
import { State, When } from '../ui/parts';
import { Ask, type Answer } from './ask';
import type { Block, EndBlock, NoteBlock, PlanBlock, RawBlock, ToolBlock, TurnBlock } from './block';
import type { Edit } from './detail';
import { Diff } from './diff';
import type { Json } from './json';
import { Prose } from './prose';

export interface RowContext {
  turns: Map<number, Turn>;
  answer: Answer;
  /** Which rows a person has opened or folded; kept here, because rows leave the page while they are out of sight. */
  toggled: Set<string>;
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
      return 130 + edited(block.detail?.edits ?? []);
    case 'plan':
      return 40 + block.entries.length * 26;
    case 'tool':
      return 44 + edited(block.edits);
    default:
      return 40;
  }
}

/** A first guess of the height of diffs. */
const edited = (edits: Edit[]) => edits.reduce((sum, edit) => sum + 50 + Math.min(340, Math.ceil(edit.after.length / 50) * 19), 0);

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
        return <TurnHead block={block} turn={turn} context={context} />;
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
        return <Ask version={block.version} block={block} answer={context.answer} drafts={context.drafts} />;
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

/** A prompt with more lines or characters than this is folded. */
const PROMPT_LINES = 14;
const PROMPT_CHARS = 1_200;

function TurnHead({ block, turn, context }: { block: TurnBlock; turn: Turn | undefined; context: RowContext }) {
  const [open, toggle] = useOpen(context, block.key);
  const prompt = turn?.prompt ?? '';
  const short = prompt.split('\n').slice(0, PROMPT_LINES).join('\n').slice(0, PROMPT_CHARS);
  const long = short.length < prompt.length;
  return (
    <div class="turn-head">
      <div class="turn-rule">
        <span>Turn {block.turn}</span>
        <When at={turn?.started_at ?? turn?.queued_at ?? block.at} />
      </div>
      {turn ? (
        <div class="prompt">
          <Prose text={long && !open ? `${short}…` : prompt} />
          {long ? (
            <button type="button" class="prompt-more" aria-expanded={open} onClick={toggle}>
              {open ? 'Show less' : `Show all ${count(prompt.length)} characters`}
            </button>
          ) : null}
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
function useOpen(context: RowContext, key: string, initially = false): [boolean, () => void] {
  const [toggled, setToggled] = useState(context.toggled.has(key));
  return [
    toggled !== initially,
    () => {
      if (toggled) context.toggled.delete(key);
      else context.toggled.add(key);
      setToggled(!toggled);
    },
  ];
}

function Tool({ block, context }: Of<ToolBlock> & { context: RowContext }) {
  // An edit is what a reader looks for.
  const [open, toggle] = useOpen(context, block.key, block.edits.length > 0);
  const line = block.input.split('\n', 1)[0] ?? '';
  const hint = line && !line.startsWith('{') ? line : block.subject;
  const more = block.title && hint && !block.title.includes(hint) ? hint : '';
  const paths = new Set(block.edits.map((edit) => edit.path));
  const places = block.places.filter((path) => !paths.has(path));
  return (
    <div class={open ? 'tool open' : 'tool'}>
      <button type="button" class="tool-head" aria-expanded={open} onClick={toggle}>
        <span class="fold">
          <Icon name="chevron" size={14} />
        </span>
        <span class="tool-name">{block.title || block.sort || 'tool'}</span>
        <span class="tool-hint">{more}</span>
        <State word={block.status} />
      </button>
      {open ? (
        <div class="tool-body">
          {places.length ? <p class="places">{places.join('  ')}</p> : null}
          {block.input ? (
            <pre tabIndex={0} role="group" aria-label="Input">
              {block.input}
            </pre>
          ) : null}
          {block.edits.map((edit, at) => (
            <Diff key={at} edit={edit} />
          ))}
          {block.output ? (
            <pre class="output" tabIndex={0} role="group" aria-label="Output">
              {block.output}
            </pre>
          ) : null}
          {!block.input && !block.output && !block.edits.length ? <p class="soft">It has said nothing about itself.</p> : null}
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
          <pre tabIndex={0}>{block.text}</pre>
        </div>
      ) : null}
    </div>
  );
}
