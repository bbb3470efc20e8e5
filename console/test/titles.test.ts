import assert from 'node:assert/strict';
import test from 'node:test';

import { ApiError } from '../src/api';
import { Titles } from '../src/titles';

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
