import assert from 'node:assert/strict';
import test from 'node:test';

import type { AskBlock, ToolBlock } from '../src/events/block';
import { detailOf, editsOfInput, heading } from '../src/events/detail';
import { compare, tally, type Line } from '../src/events/lines';
import { Reduction } from '../src/events/reduce';
import { Changes } from '../src/notifications/changes';
import { groups } from '../src/pages/memory/groups';
import type { Hit, Live, LogEvent } from '../src/shapes';
import { weeks } from '../src/ui/chart';

const show = (lines: Line[]) =>
  lines.map((line) => (line.kind === 'gap' ? `@${line.count}` : `${{ kept: ' ', removed: '-', added: '+' }[line.kind]}${line.text}`));

test('two texts are compared by line', () => {
  assert.deepEqual(show(compare('a\nb\nc\n', 'a\nx\nc\n')), [' a', '-b', '+x', ' c']);
  assert.deepEqual(show(compare(null, 'new\nfile\n')), ['+new', '+file']);
  assert.deepEqual(show(compare('gone', '')), ['-gone']);
  assert.deepEqual(show(compare('same', 'same')), ['@1']);
  assert.deepEqual(show(compare('one\ntwo\nthree', 'two\nthree\nfour')), ['-one', ' two', ' three', '+four']);
});

test('lines far from a change are left out', () => {
  const lines = Array.from({ length: 30 }, (_, at) => `line ${at}`);
  const changed = lines.with(15, 'another');
  const found = compare(lines.join('\n'), changed.join('\n'));
  assert.deepEqual(show(found).filter((line) => line.startsWith('@')), ['@12', '@11']);
  assert.equal(found.length, 2 + 6 + 2);
  assert.deepEqual(tally(found), { added: 1, removed: 1 });
});

test('nothing is lost, however the texts differ', () => {
  let seed = 7;
  const next = (most: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % most;
  for (let round = 0; round < 200; round += 1) {
    const text = () => Array.from({ length: next(12) }, () => 'abcd'[next(4)]!).join('\n');
    const [before, after] = [text(), text()];
    // Short texts have no gaps of their own: every line is near a change or nothing has changed.
    const lines = compare(before, after).filter((line): line is Exclude<typeof line, { kind: 'gap' }> => line.kind !== 'gap');
    if (before === after || compare(before, after).length !== lines.length) continue;
    const side = (kinds: string[]) => lines.flatMap((line) => (kinds.includes(line.kind) ? [line.text] : [])).join('\n');
    assert.equal(side(['kept', 'removed']), before);
    assert.equal(side(['kept', 'added']), after);
  }
});

test('huge texts are replaced whole, at once', () => {
  const many = (word: string) => Array.from({ length: 3000 }, (_, at) => `${word} ${at}`).join('\n');
  assert.deepEqual(tally(compare(many('a'), many('b'))), { added: 3000, removed: 3000 });
});

test('the edits of every agent are found', () => {
  const edit = { path: '/a.ts', before: 'x', after: 'y' };
  assert.deepEqual(editsOfInput({ file_path: '/a.ts', old_string: 'x', new_string: 'y', replace_all: false }), [edit]);
  assert.deepEqual(editsOfInput({ filePath: '/a.ts', oldString: 'x', newString: 'y' }), [edit]);
  assert.deepEqual(editsOfInput({ file_path: '/a.ts', edits: [{ old_string: 'x', new_string: 'y' }, { old_string: 'p', new_string: '' }] }), [edit, { path: '/a.ts', before: 'p', after: '' }]);
  assert.deepEqual(editsOfInput({ file_path: '/a.ts', content: 'y' }), [{ ...edit, before: null }]);
  for (const none of [{ file_path: '/a.ts' }, { command: 'ls' }, { content: 'y' }, 'text', null]) assert.deepEqual(editsOfInput(none), []);
  const call = { rawInput: { path: '/a.ts' }, content: [{ type: 'diff', path: '/a.ts', oldText: 'x', newText: 'y' }, { type: 'diff', path: '/b', oldText: null, newText: 'new' }] };
  assert.deepEqual(detailOf(call).edits, [edit, { path: '/b', before: null, after: 'new' }]);
});

test('a command is read as a text and as a list of words', () => {
  assert.equal(detailOf({ rawInput: { command: 'ls -l' } }).command, 'ls -l');
  assert.equal(detailOf({ rawInput: { command: ['bash', '-lc', 'ls | wc'] } }).command, 'ls | wc');
  assert.equal(detailOf({ rawInput: { command: ['git', 'status'] } }).command, 'git status');
  assert.equal(detailOf({ rawInput: { url: 'https://example.com', prompt: 'read' } }).input.includes('"prompt": "read"'), true);
  assert.equal(detailOf({ rawInput: { file_path: '/a' } }).input, '');
});

test('a question has no title that repeats its command', () => {
  const detail = (command: string) => ({ command, subject: '', edits: [], input: '' });
  assert.equal(heading('Bash: rm -rf x', detail('rm -rf x')), 'Bash');
  assert.equal(heading('Bash: rm a rm b', detail('rm a\nrm b')), 'Bash');
  assert.equal(heading('`npm test`', detail('npm test')), 'run a command');
  assert.equal(heading('delete the logs', null), 'delete the logs');
});

let seq = 0;
const push = (reduction: Reduction, fields: Partial<LogEvent> & { event: string }) => reduction.push({ seq: (seq += 1), at: '', turn_index: 1, ...fields } as LogEvent);
const options = [{ option: 'yes', name: 'Allow', kind: 'allow_once' }];
const about = (id: unknown, toolCall: object) => ({ event: 'message', message: { id, method: 'session/request_permission', params: { toolCall } } });
const asked = (id: string, title = 'Edit') => ({ event: 'permission', request_id: id, status: 'asked', title, options });
const edit = { rawInput: { file_path: '/a', old_string: 'x', new_string: 'y' } };

test('a question says what it is about, whichever comes first', () => {
  for (const [wire, request] of [[4, '4'], ['r1', 'r1'], ['r1', '"r1"']] as const) {
    const before = new Reduction();
    push(before, about(wire, edit));
    push(before, asked(request));
    const after = new Reduction();
    push(after, asked(request));
    push(after, about(wire, edit));
    for (const { questions } of [before, after]) assert.deepEqual(questions.map((ask) => ask.detail?.edits[0]?.after), ['y'], `${wire} ${request}`);
  }
});

test('a question that names only its call shows what the call is', () => {
  const reduction = new Reduction();
  push(reduction, { event: 'message', message: { method: 'session/update', params: { update: { sessionUpdate: 'tool_call', toolCallId: 'c', kind: 'execute', title: 'Bash', rawInput: { command: 'rm x' } } } } });
  push(reduction, about(1, { toolCallId: 'c' }));
  push(reduction, asked('1', 'Bash'));
  assert.equal(reduction.questions[0]?.detail?.command, 'rm x');
});

test('questions of an agent that was started again are questions of their own', () => {
  const reduction = new Reduction();
  push(reduction, asked('0', 'first'));
  push(reduction, { event: 'permission', request_id: '0', status: 'answered', option: 'yes', by: 'caller' });
  push(reduction, asked('0', 'second'));
  const asks = reduction.blocks.filter((block): block is AskBlock => block.kind === 'ask');
  assert.deepEqual(asks.map((ask) => [ask.title, ask.status]), [['first', 'answered'], ['second', 'asked']]);
  assert.deepEqual(reduction.questions.map((ask) => ask.title), ['second']);
});

test('an edit is shown as a diff and not as its input', () => {
  const reduction = new Reduction();
  push(reduction, { event: 'message', message: { method: 'session/update', params: { update: { sessionUpdate: 'tool_call', toolCallId: 'c', title: 'Edit', ...edit } } } });
  const tool = reduction.blocks.find((block): block is ToolBlock => block.kind === 'tool')!;
  assert.deepEqual([tool.input, tool.subject, tool.edits.length], ['', '/a', 1]);
});

const live = (fields: Partial<Live>): Live => ({ id: 'a', session_id: 'a', app: '@owner', busy: false, waiting: false, turns: 0, ...fields }) as Live;

test('questions and the owner’s finished turns are news', () => {
  const changes = new Changes();
  const kinds = (list: Live[]) => changes.next(list).map((change) => change.kind);
  assert.deepEqual(kinds([live({ turns: 3 })]), [], 'the first look knows no past');
  assert.deepEqual(kinds([live({ turns: 3, busy: true })]), []);
  assert.deepEqual(kinds([live({ turns: 3, busy: true, waiting: true })]), ['waits']);
  assert.deepEqual(kinds([live({ turns: 4 })]), ['done']);
  assert.deepEqual(kinds([live({ turns: 4 })]), []);
  assert.deepEqual(kinds([live({ turns: 5 })]), ['done'], 'a turn between two looks');
  assert.deepEqual(kinds([live({ turns: 5, app: 'shop', busy: true })]), []);
  assert.deepEqual(kinds([live({ turns: 6, app: 'shop' })]), [], 'an app’s own turns are no news');
  assert.deepEqual(kinds([live({ session_id: null, waiting: true })]), []);
});

test('hits of one session stand together, the best first', () => {
  const hit = (record_id: string, session_id: string) => ({ record_id, session_id }) as Hit;
  const found = groups([hit('1', 'a'), hit('2', 'b'), hit('3', 'a'), hit('4', ''), hit('5', '')]);
  assert.deepEqual(found.map((group) => group.map((one) => one.record_id)), [['1', '3'], ['2'], ['4'], ['5']]);
});

test('weeks end with the last day', () => {
  const found = weeks(Array.from({ length: 16 }, (_, at) => at));
  assert.deepEqual(found.map((week) => week.length), [2, 7, 7]);
  assert.equal(found.at(-1)!.at(-1), 15);
});
