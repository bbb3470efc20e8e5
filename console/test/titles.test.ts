import assert from 'node:assert/strict';
import test from 'node:test';

import { ApiError } from '../src/api';
import { FirstPrompts, Titles, titleOfPrompt } from '../src/titles';

const named = (id: string) => ({ session_id: id, meta: { title: `title of ${id}` } });

function titles(one: (id: string) => Promise<ReturnType<typeof named>> = async (id) => named(id)) {
  const asked: string[] = [];
  const at = { now: 0 };
  const made = new Titles(
    {
      one: (id) => {
        asked.push(id);
        return one(id);
      },
      all: async () => {
        asked.push('all');
        return 'abcdefgh'.split('').map(named);
      },
    },
    () => at.now,
  );
  return { made, asked, at, want: (ids: string) => made.want(new Set(ids.split(''))) };
}

test('a title is asked for once', async () => {
  const { made, asked, want } = titles();
  await want('ab');
  await want('ab');
  await want('abc');
  assert.deepEqual(asked, ['a', 'b', 'c']);
  assert.equal(made.known.value.get('c'), 'title of c');
});

test('many are asked for together, and of the answer only those are kept', async () => {
  const { made, asked, want } = titles();
  await want('abcdex');
  assert.deepEqual(asked, ['all']);
  assert.deepEqual([...made.known.value.keys()].toSorted(), ['a', 'b', 'c', 'd', 'e', 'x']);
  assert.equal(made.known.value.get('x'), '');
  await want('axy');
  assert.deepEqual(asked, ['all', 'y']);
  assert.deepEqual([...made.known.value.keys()].toSorted(), ['a', 'x', 'y']);
});

test('one that is gone again has no title, and is not asked for again', async () => {
  const { made, asked, want } = titles((id) => (id === 'b' ? Promise.reject(new ApiError(404, 'not_found', '')) : Promise.resolve(named(id))));
  await want('ab');
  await want('ab');
  assert.deepEqual(asked, ['a', 'b']);
  assert.deepEqual([made.known.value.get('a'), made.known.value.get('b')], ['title of a', '']);
});

test('a server that fails is left alone for a while', async () => {
  let fails = true;
  const { made, asked, at, want } = titles((id) => (fails ? Promise.reject(new ApiError(500, 'failed', '')) : Promise.resolve(named(id))));
  await want('a');
  await want('a');
  assert.deepEqual(asked, ['a']);
  fails = false;
  at.now = 9_000;
  await want('a');
  assert.deepEqual([asked.length, made.known.value.get('a')], [2, 'title of a']);
});

test('a title of a prompt is its first line that says something', () => {
  assert.equal(titleOfPrompt('\n  Why does the build fail?  \nIt did not yesterday.'), 'Why does the build fail?');
  assert.equal(titleOfPrompt(' \n'), '');
  const long = titleOfPrompt('word '.repeat(40));
  assert.ok(long.length <= 80 && long.endsWith('word…'), long);
  assert.equal(titleOfPrompt('😀'.repeat(60)), `${'😀'.repeat(39)}…`, 'no character is split');
});

test('first prompts are asked for once, and only where there is no title', async () => {
  const asked: string[] = [];
  let fails = true;
  const prompts = new FirstPrompts(async (id) => {
    asked.push(id);
    if (id === 'c' && fails) throw new Error('away');
    return `prompt of ${id}`;
  });
  const session = (id: string, title = '', turns = 1) => ({ session_id: id, meta: title ? { title } : {}, turn_count: turns });
  const list = [session('a'), session('b', 'its own title'), session('c'), session('d', '', 0)];
  await prompts.want(list);
  await prompts.want([session('a')]);
  assert.deepEqual(asked, ['a', 'c']);
  assert.deepEqual([...prompts.known.value], [['a', 'prompt of a']]);
  // What failed is asked for again, and a session that had no turn then.
  fails = false;
  await prompts.want([...list.slice(0, 3), session('d')]);
  assert.deepEqual(asked.slice(2).toSorted(), ['c', 'd']);
  assert.equal(prompts.known.value.get('d'), 'prompt of d');
});

test('a long list is asked for in parts', async () => {
  let now = 0;
  let most = 0;
  let asked = 0;
  const prompts = new FirstPrompts(async (id) => {
    asked += 1;
    now += 1;
    most = Math.max(most, now);
    await Promise.resolve();
    now -= 1;
    return id;
  });
  const list = Array.from({ length: 130 }, (_, at) => ({ session_id: String(at), meta: {}, turn_count: 1 }));
  await prompts.want(list);
  assert.deepEqual([asked, most], [100, 4]);
  await prompts.want(list);
  assert.equal(asked, 130);
});
