import assert from 'node:assert/strict';
import test from 'node:test';

import { answer, elapse, FakeSource, requests, reset, settle, show, timers } from './browser';
import { standing } from '../src/api';
import { follow } from '../src/stream';

function begin(ask?: string) {
  reset();
  standing.value = 'signed-in';
  return follow({ url: () => '/stream', on: {}, ...(ask ? { ask } : {}) });
}

const cut = async () => {
  FakeSource.open[0]!.onerror!();
  await settle();
};

test('who comes back while it is asked whether to go on makes no second connection', async () => {
  const stream = begin();
  await cut();
  show(false);
  show(true);
  assert.equal(FakeSource.open.length, 0);
  await answer('/admin/me', {});
  show(false);
  show(true);
  await elapse();
  assert.deepEqual([FakeSource.all.length, FakeSource.open.length], [2, 1]);
  stream.close();
  assert.equal(FakeSource.open.length, 0);
});

test('a stream that was cut while nobody looked goes on when somebody does', async () => {
  const stream = begin();
  show(false);
  await cut();
  await answer('/admin/me', {});
  assert.deepEqual([FakeSource.open.length, requests.length], [0, 0]);
  show(true);
  assert.equal(FakeSource.open.length, 1);
  show(false);
  await elapse();
  assert.equal(FakeSource.open.length, 0);
  show(true);
  assert.equal(FakeSource.open.length, 1);
  stream.close();
});

test('after the next sign-in there is one connection, however often one looked', async () => {
  const stream = begin();
  await cut();
  await answer('/admin/me', {}, 401);
  assert.equal(standing.value, 'signed-out');
  for (let times = 0; times < 3; times += 1) {
    show(false);
    show(true);
  }
  await elapse();
  assert.deepEqual([FakeSource.all.length, requests.length], [1, 0]);
  standing.value = 'signed-in';
  assert.deepEqual([FakeSource.all.length, FakeSource.open.length], [2, 1]);
  stream.close();
  standing.value = 'signed-out';
  standing.value = 'signed-in';
  assert.equal(FakeSource.open.length, 0);
});

test('a stream whose place is gone is not tried again', async () => {
  begin('/admin/sessions/a');
  await cut();
  await answer('/admin/sessions/a', { code: 'not_found' }, 404);
  show(false);
  show(true);
  await elapse();
  assert.deepEqual([FakeSource.open.length, requests.length, timers.size], [0, 0, 0]);
});

test('one that is there is tried again', async () => {
  const stream = begin('/admin/sessions/a');
  await cut();
  await answer('/admin/sessions/a', {});
  await elapse();
  assert.equal(FakeSource.open.length, 1);
  stream.close();
});
