// What a session's log is shown as: events of the wire become blocks for the eye.
import type { Detail, Edit } from './detail';
import type { Json } from './json';

interface Base {
  /** Stays the same while the block grows. */
  key: string;
  /** Counts up with every change. */
  version: number;
  /** The numbers of the first and the last event it was made of. */
  first: number;
  last: number;
  turn: number | null;
  at: string | null;
}

/** Where a turn begins, as far as the log shows it. */
export interface TurnBlock extends Base {
  kind: 'turn';
}

/** How a turn ended. */
export interface EndBlock extends Base {
  kind: 'end';
  state: string;
  reason: string | null;
  error: string | null;
  tokens: number | null;
  cost: number | null;
  duration: number | null;
}

/** What the agent said or thought, or what it repeated of the user. */
export interface TextBlock extends Base {
  kind: 'text' | 'thought' | 'user';
  text: string;
  /** It goes on from the block before it. */
  continues: boolean;
}

export interface ToolBlock extends Base {
  kind: 'tool';
  call: string;
  title: string;
  /** `read`, `edit`, `execute` and so on. */
  sort: string;
  status: string;
  /** The file, pattern or address that it names. */
  subject: string;
  input: string;
  output: string;
  edits: Edit[];
  /** Files it touches. */
  places: string[];
}

export interface PlanBlock extends Base {
  kind: 'plan';
  entries: { content: string; status: string }[];
}

export interface Option {
  option: string;
  name: string;
  kind: string;
}

export interface AskBlock extends Base {
  kind: 'ask';
  request: string;
  title: string;
  options: Option[];
  /** The form that the agent wants filled in. */
  form: Json | null;
  /** What is asked for. */
  detail: Detail | null;
  /** `asked` until there is an answer. */
  status: string;
  answer: string | null;
  by: string | null;
}

/** Something that was done with the session. */
export interface NoteBlock extends Base {
  kind: 'note';
  word: string;
  text: string;
  tone: 'plain' | 'warn' | 'bad';
}

/** A message this page knows no better way to show. */
export interface RawBlock extends Base {
  kind: 'raw';
  title: string;
  text: string;
}

export type Block =
  | TurnBlock
  | EndBlock
  | TextBlock
  | ToolBlock
  | PlanBlock
  | AskBlock
  | NoteBlock
  | RawBlock;

/** Roughly how many characters a block holds. */
export function weight(block: Block): number {
  switch (block.kind) {
    case 'text':
    case 'thought':
    case 'user':
    case 'raw':
      return block.text.length + 80;
    case 'tool':
      return block.input.length + block.output.length + edited(block.edits) + 200;
    case 'ask':
      return (block.detail?.command.length ?? 0) + edited(block.detail?.edits ?? []) + 400;
    default:
      return 200;
  }
}

const edited = (edits: Edit[]) => edits.reduce((sum, edit) => sum + (edit.before?.length ?? 0) + edit.after.length, 0);
