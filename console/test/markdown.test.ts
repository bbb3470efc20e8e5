import assert from 'node:assert/strict';
import test from 'node:test';

import { type Block, blocks, inline, type Inline } from '../src/events/markdown';

/** A tree in few characters, for comparing. */
const brief = (nodes: Inline[]): string =>
  nodes
    .map((node) => {
      if (typeof node === 'string') return node;
      if (node.kind === 'code') return `<code>${node.text}</code>`;
      if (node.kind === 'link') return `<${node.address}${node.host && ` ${node.host}`}>${brief(node.inside)}</>`;
      return `<${node.kind}>${brief(node.inside)}</${node.kind}>`;
    })
    .join('');

function check(text: string, expect: string) {
  assert.equal(brief(inline(text)), expect);
}

const text = (words: string): Block => ({ kind: 'text', text: words });
const item = (...inside: Block[]) => ({ done: null, blocks: inside });

test('headings and tables have a form, and all else stays as it was written', () => {
  assert.deepEqual(blocks('# Result\nplain\ntext\n#### Deep ##'), [
    { kind: 'heading', level: 1, text: 'Result' },
    text('plain\ntext'),
    { kind: 'heading', level: 4, text: 'Deep' },
  ]);
  assert.deepEqual(blocks('| a | b |\n|---|:-:|\n| 1 | x \\| y |\n| 2 |'), [
    { kind: 'table', head: ['a', 'b'], rows: [['1', 'x | y'], ['2', '']] },
  ]);
  for (const one of ['#hash', 'a | b', '-5 degrees', '2026. was', '<b>&lt;', '--']) assert.deepEqual(blocks(one), [text(one)]);
});

test('lists nest, keep their numbers, and hold code and tasks', () => {
  assert.deepEqual(blocks('Steps:\n3. one\n   goes on\n  - inner\n\n4. two\nend'), [
    text('Steps:'),
    {
      kind: 'list',
      start: 3,
      items: [item(text('one\ngoes on'), { kind: 'list', start: null, items: [item(text('inner'))] }), item(text('two'))],
    },
    text('end'),
  ]);
  assert.deepEqual(blocks('- run\n  ```sh\n  make\n  \tall\n  ```\n- [x] made\n- [ ] open\n1. other'), [
    {
      kind: 'list',
      start: null,
      items: [item(text('run'), { kind: 'code', text: 'make\n  all' }), { done: true, blocks: [text('made')] }, { done: false, blocks: [text('open')] }],
    },
    { kind: 'list', start: 1, items: [item(text('other'))] },
  ]);
});

test('quotes and rules have a form', () => {
  assert.deepEqual(blocks('> said\n> - once\n\n---\n* * *\nend'), [
    { kind: 'quote', blocks: [text('said'), { kind: 'list', start: null, items: [item(text('once'))] }] },
    { kind: 'rule' },
    { kind: 'rule' },
    text('end'),
  ]);
});

test('fences are code, also before they are closed', () => {
  assert.deepEqual(blocks('a\n\n```ts title=x\nlet x;\n\n- y\n```\nb'), [text('a'), { kind: 'code', text: 'let x;\n\n- y' }, text('b')]);
  assert.deepEqual(blocks('a\n```\nopen').at(-1), { kind: 'code', text: 'open' });
});

test('words are strong, emphasised, struck out or code, within each other', () => {
  check('**a `b*` *c* d** and ~~e~~', '<strong>a <code>b*</code> <em>c</em> d</strong> and <del>e</del>');
  check('***both*** __so__ _it_ *goes*.', '<strong><em>both</em></strong> <strong>so</strong> <em>it</em> <em>goes</em>.');
  check('``a ` b`` `` ` ``', '<code>a ` b</code> <code>`</code>');
  check('2*3*4, snake_case_name, src/*.ts and lib/*.ts, f(*args, **kwargs), a * b * c', '2*3*4, snake_case_name, src/*.ts and lib/*.ts, f(*args, **kwargs), a * b * c');
  check('\\*no\\* C:\\new **open `tick [brac', '*no* C:\\new **open `tick [brac');
});

test('a link says where it goes unless its text does', () => {
  check('[the notes](https://example.com/a_(b) "Notes") and <https://example.com/>', '<https://example.com/a_(b) example.com>the notes</> and <https://example.com/>https://example.com/</>');
  check('see https://example.com/a. **https://example.com/b**', 'see <https://example.com/a>https://example.com/a</>. <strong><https://example.com/b>https://example.com/b</></strong>');
  check('[https://good.example](https://evil.example)', '<https://evil.example/ evil.example>https://good.example</>');
  check('[example.com/a](https://example.com/a)', '<https://example.com/a>example.com/a</>');
  check('https://good.example@evil.example/', '<https://good.example@evil.example/ evil.example>https://good.example@evil.example/</>');
  check('https://ex\u0430mple.com/', '<https://xn--exmple-4nf.com/ xn--exmple-4nf.com>https://ex\u0430mple.com/</>');
  check('[![**b**](https://img.example/b.svg)](https://example.com)', '<https://example.com/ example.com>b</>');
});

test('nothing but an address of the web is a link', () => {
  for (const one of ['[x](javascript:alert(1))', '[x](data:text/html,x)', '<javascript:alert(1)>', '[x](src/a.ts:12)', 'https://', '[x](https://)', '<script>alert(1)</script>']) check(one, one);
});

test('texts that are made to take long take no time', () => {
  const long = ['[', '*a ', '**a', '> ', '- ', '`'.repeat(7) + ' ``', '_a__b', '|a', '](http://a(b ', '[a](', '<a ', '~~a', '![[]()', 'http://', '| -  ', '\n- a\n\n'];
  const began = performance.now();
  for (const one of long) for (const block of blocks(one.repeat(20_000))) if ('text' in block) inline(block.text);
  blocks(Array.from({ length: 400 }, (_, at) => `${' '.repeat(at * 2)}- a`).join('\n'));
  assert.ok(performance.now() - began < 5_000, `${performance.now() - began} ms`);
});
