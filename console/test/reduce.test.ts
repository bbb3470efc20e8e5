import assert from 'node:assert/strict';
import test from 'node:test';

import type { Block, TextBlock, ToolBlock } from '../src/events/block';
import { contentOf, fieldsOf } from '../src/events/form';
import { Reduction } from '../src/events/reduce';
import type { LogEvent } from '../src/shapes';

let seq = 0;
const at = '2026-11-15T09:00:00Z';
const event = (fields: Partial<LogEvent> & { event: string }): LogEvent => ({ seq: (seq += 1), at, ...fields });
const update = (sessionUpdate: string, fields: object, turn: number | null | undefined = 1): LogEvent =>
  event({ event: 'message', turn_index: turn, message: { method: 'session/update', params: { update: { sessionUpdate, ...fields } } } });
const say = (text: string, turn?: number) => update('agent_message_chunk', { content: { type: 'text', text } }, turn ?? 1);

function reduce(events: LogEvent[]): Reduction {
  const reduction = new Reduction();
  for (const one of events) reduction.push(one);
  return reduction;
}

const kinds = (blocks: Block[]) => blocks.map((block) => block.kind);

test('pieces of one message are one text', () => {
  const { blocks } = reduce([say('Hel'), say('lo'), update('agent_thought_chunk', { content: { text: 'hm' } }), say(' there')]);
  assert.deepEqual(kinds(blocks), ['turn', 'text', 'thought', 'text']);
  assert.equal((blocks[1] as TextBlock).text, 'Hello');
});

test('a long text goes on in a block of its own, without losing a letter', () => {
  const line = `${'word '.repeat(20)}\n`;
  const whole = line.repeat(900);
  const { blocks } = reduce([...whole.match(/[\s\S]{1,37}/g)!].map((piece) => say(piece)));
  const texts = blocks.filter((block): block is TextBlock => block.kind === 'text');
  assert.ok(texts.length > 5);
  assert.ok(texts.every((block) => block.text.length < 10_000));
  assert.equal(texts.map((block) => block.text).join(''), whole);
  assert.deepEqual([texts[0]!.continues, texts[1]!.continues], [false, true]);
  assert.equal(new Set(blocks.map((block) => block.key)).size, blocks.length);
  const single = reduce([say(whole)]).blocks.filter((block): block is TextBlock => block.kind === 'text');
  assert.equal(single.map((block) => block.text).join(''), whole);
});

test('a character of two halves is not cut', () => {
  const { blocks } = reduce([say('🔥'.repeat(9_001))]);
  const texts = blocks.filter((block): block is TextBlock => block.kind === 'text');
  assert.ok(texts.every((block) => !/[\ud800-\udbff]$/.test(block.text)));
});

test('a tool call grows with its updates', () => {
  const { blocks } = reduce([
    update('tool_call', { toolCallId: 'a', title: 'Bash', kind: 'execute', status: 'pending', rawInput: { command: 'ls' } }),
    say('meanwhile'),
    update('tool_call_update', { toolCallId: 'a', status: 'completed', content: [{ type: 'content', content: { type: 'text', text: 'x.rs' } }] }),
  ]);
  assert.deepEqual(kinds(blocks), ['turn', 'tool', 'text']);
  const tool = blocks[1] as ToolBlock;
  assert.deepEqual([tool.status, tool.input, tool.output], ['completed', 'ls', 'x.rs']);
});

test('a tool that talks much is clipped', () => {
  const { blocks } = reduce([update('tool_call', { toolCallId: 'a', title: 'x', content: [{ type: 'content', content: { text: 'y'.repeat(1_000_000) } }] })]);
  assert.ok((blocks[1] as ToolBlock).output.length < 20_000);
});

test('a question is answered in its place', () => {
  const options = [{ option: 'yes', name: 'Allow', kind: 'allow_once' }];
  const { blocks } = reduce([
    event({ event: 'permission', turn_index: 1, request_id: 'r', status: 'asked', title: 'rm', options }),
    event({ event: 'permission', turn_index: 1, request_id: 'r', status: 'answered', option: 'yes', by: 'caller' }),
  ]);
  assert.deepEqual(kinds(blocks), ['turn', 'ask']);
  const ask = blocks[1]!;
  assert.ok(ask.kind === 'ask' && ask.status === 'answered' && ask.answer === 'yes' && ask.options.length === 1);
});

test('a question nobody answered ends with its turn', () => {
  const { blocks } = reduce([
    event({ event: 'permission', turn_index: 1, request_id: 'r', status: 'asked', title: 'rm', options: [] }),
    event({ event: 'turn', turn_index: 1, state: 'cancelled' }),
  ]);
  assert.ok(blocks[1]!.kind === 'ask' && blocks[1]!.status === 'over');
});

test('messages of a stream belong to the turn after the last', () => {
  const live = (text: string) => event({ event: 'message', message: { method: 'session/update', params: { update: { sessionUpdate: 'agent_message_chunk', content: { text } } } } });
  const reduction = reduce([say('one'), event({ event: 'turn', turn_index: 1, state: 'finished' }), live('two')]);
  assert.equal(reduction.turn, 2);
  assert.deepEqual(reduction.blocks.map((block) => block.turn), [1, 1, 1, 2, 2]);
});

test('older pages join what they were cut from', () => {
  const all = [
    say('begin '),
    update('tool_call', { toolCallId: 'a', title: 'Bash', rawInput: { command: 'ls' } }),
    say('middle '),
    update('tool_call_update', { toolCallId: 'a', status: 'completed' }),
    say('end'),
  ];
  const newer = reduce(all.slice(3));
  newer.prepend(reduce(all.slice(0, 3)));
  assert.deepEqual(kinds(newer.blocks), ['turn', 'text', 'tool', 'text', 'text']);
  const tool = newer.blocks[2] as ToolBlock;
  assert.deepEqual([tool.title, tool.status], ['Bash', 'completed']);
  assert.equal((newer.blocks[4] as TextBlock).continues, true);
  // What comes later still finds the call.
  newer.push(update('tool_call_update', { toolCallId: 'a', status: 'failed' }));
  assert.equal(tool.status, 'failed');
});

test('what is not known is shown as it is, and state is not', () => {
  const { blocks } = reduce([
    update('from_the_future', { x: 1 }),
    update('usage_update', { used: 3 }),
    update('available_commands_update', {}),
    event({ event: 'message', turn_index: 1, message: { method: 'fs/read', params: {} } }),
    event({ event: 'message', turn_index: 1, message: 'nonsense' }),
    event({ event: 'message', turn_index: 1, message: { id: 1, result: { stopReason: 'end_turn' } } }),
  ]);
  assert.deepEqual(kinds(blocks), ['turn', 'raw', 'raw', 'raw']);
});

test('a plan is told whole each time', () => {
  const entries = (status: string) => ({ entries: [{ content: 'one', status }] });
  const { blocks } = reduce([update('plan', entries('pending')), say('x'), update('plan', entries('completed'))]);
  assert.deepEqual(kinds(blocks), ['turn', 'plan', 'text']);
  assert.ok(blocks[1]!.kind === 'plan' && blocks[1]!.entries[0]!.status === 'completed');
});

test('dropping the oldest forgets their calls', () => {
  const reduction = reduce([update('tool_call', { toolCallId: 'a', title: 'x' }), say('y')]);
  reduction.dropOldest(2);
  reduction.push(update('tool_call_update', { toolCallId: 'a', status: 'completed' }));
  assert.deepEqual(kinds(reduction.blocks), ['text', 'tool']);
});

test('a form has fields of its schema, and content of its inputs', () => {
  const form = {
    required: ['port'],
    properties: {
      port: { type: 'integer', title: 'Port' },
      ratio: { type: 'number' },
      host: { type: 'string', default: 'here' },
      sure: { type: 'boolean' },
      size: { type: 'string', oneOf: [{ const: 's', title: 'Small' }] },
      tags: { type: 'array', items: { type: 'string', enum: ['a', 'b'] } },
    },
  };
  const fields = fieldsOf(form);
  assert.deepEqual(fields.map((field) => field.kind), ['integer', 'number', 'text', 'boolean', 'choice', 'choices']);
  assert.deepEqual([fields[0]!.title, fields[0]!.required, fields[2]!.initial], ['Port', true, 'here']);
  assert.deepEqual([fields[4]!.choices, fields[5]!.choices.length], [[{ value: 's', title: 'Small' }], 2]);
  const data = new FormData();
  const typed: [number, string][] = [[0, '80'], [1, ''], [2, 'x'], [3, 'on'], [4, 's'], [5, 'a'], [5, 'b']];
  for (const [index, value] of typed) data.append(`field-${index}`, value);
  assert.deepEqual(contentOf(fields, data), { port: 80, host: 'x', sure: true, size: 's', tags: ['a', 'b'] });
});
