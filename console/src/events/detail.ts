// What a tool call is about: its command, its files, and its edits.
import { array, object, string, type Json } from './json';

/** A change of a file. */
export interface Edit {
  path: string;
  /** `null` if the agent does not say what was there, as for a new file. */
  before: string | null;
  after: string;
}

export interface Detail {
  command: string;
  /** The file, pattern or address that the call names. */
  subject: string;
  edits: Edit[];
  /** The rest of the input, if there is more than the fields above. */
  input: string;
}

/** Number of edits of one call that are kept, and number of characters of each side. */
const MAX_EDITS = 20;
const MAX_EDIT_CHARS = 16_000;

/** The names of these fields differ between agents. They are those of `driver/tool_input.rs`, which a test compares. */
const COMMANDS = ['command', 'cmd'];
const PATHS = ['file_path', 'filePath', 'filepath', 'notebook_path', 'path', 'abs_path', 'absolute_path'];
const SUBJECTS = ['pattern', 'url', 'query'];
const BEFORE = ['old_string', 'oldString', 'old_str', 'oldText'];
const AFTER = ['new_string', 'newString', 'new_str', 'newText', 'new_source'];
const WHOLE = ['content', 'file_text'];
/** What a tool works on, if it runs no command. */
const NAMED = [...PATHS, ...SUBJECTS];

const first = (fields: Json, names: string[]): string | null => {
  const name = names.find((one) => typeof fields[one] === 'string');
  return name === undefined ? null : string(fields[name]);
};

const bounded = (edit: Edit): Edit => ({
  path: edit.path,
  before: edit.before === null ? null : clip(edit.before, MAX_EDIT_CHARS),
  after: clip(edit.after, MAX_EDIT_CHARS),
});

/** Returns the edits that a tool's input describes: those of Claude's Edit, MultiEdit, Write and NotebookEdit and their kin. */
export function editsOfInput(value: unknown): Edit[] {
  const input = object(value);
  const path = first(input, PATHS);
  if (path === null) return [];
  const replaced = (fields: Json): Edit | null => {
    const after = first(fields, AFTER);
    return after === null ? null : { path, before: first(fields, BEFORE), after };
  };
  const many = array(input['edits']).map((one) => replaced(object(one)));
  const one = replaced(input);
  const whole = first(input, WHOLE);
  const found: (Edit | null)[] = many.length ? many : one ? [one] : whole === null ? [] : [{ path, before: null, after: whole }];
  return found.filter((edit) => edit !== null).slice(0, MAX_EDITS).map(bounded);
}

/** Returns the edits among the content of a tool call. */
export function editsOfContent(value: unknown): Edit[] {
  return array(value)
    .map(object)
    .filter((item) => item['type'] === 'diff')
    .slice(0, MAX_EDITS)
    .map((item) => bounded({ path: string(item['path']), before: typeof item['oldText'] === 'string' ? item['oldText'] : null, after: string(item['newText']) }));
}

/** Returns a command that is a text or a list of words. */
function commandOf(input: Json): string {
  const name = COMMANDS.find((one) => input[one] !== undefined && input[one] !== null);
  const command = name === undefined ? '' : input[name];
  if (typeof command === 'string') return command;
  const words = array(command).map(string).filter(Boolean);
  // A shell that runs one script is not worth reading.
  return words.length === 3 && words[0]!.endsWith('sh') && /^-l?c$/.test(words[1]!) ? words[2]! : words.join(' ');
}

/** Reads a tool call as the agent describes it. */
export function detailOf(call: Json): Detail {
  const input = object(call['rawInput']);
  const told = editsOfContent(call['content']);
  const edits = told.length ? told : editsOfInput(input);
  const command = clip(commandOf(input), MAX_EDIT_CHARS);
  const subject = first(input, NAMED) ?? '';
  const plain = Object.keys(input).every((name) => NAMED.includes(name) || name === 'description');
  const rest = command || edits.length || plain ? '' : clip(pretty(input), 4_000);
  return { command, subject, edits, input: rest };
}

/** Whether there is anything to show. */
export const tells = (detail: Detail): boolean => Boolean(detail.command || detail.edits.length || detail.input || detail.subject);

const oneLine = (text: string) => text.split(/\s+/).filter(Boolean).join(' ');

/** The title without the command that is shown below it. */
export function heading(title: string, detail: Detail | null): string {
  const command = oneLine(detail?.command ?? '');
  const at = command ? title.indexOf(command.slice(0, 60)) : -1;
  return at < 0 ? title : title.slice(0, at).replace(/[\s:`'"($]+$/, '') || 'run a command';
}

export function pretty(value: unknown): string {
  if (typeof value === 'string') return value;
  const fields = object(value);
  // A lone command reads better without its braces.
  const names = Object.keys(fields);
  if (typeof fields['command'] === 'string' && names.every((n) => n === 'command' || n === 'description')) {
    return fields['command'];
  }
  try {
    return JSON.stringify(value, null, 2) ?? '';
  } catch {
    return '';
  }
}

export function clip(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text.slice(0, cutAt(text, most))}\n… ${(text.length - most).toLocaleString('en')} characters more`;
}

/** A place to cut that does not split a character. */
export function cutAt(text: string, at: number): number {
  if (at >= text.length) return text.length;
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff ? at - 1 : at;
}
