import assert from 'node:assert/strict';
import test from 'node:test';

import { elapse, FakeSocket, reset, settle } from './browser';
import { standing } from '../src/api';
import { Attachment, watchable } from '../src/terminal/attach';

function attach(allowed: () => boolean) {
  reset();
  standing.value = 'signed-in';
  const told: string[] = [];
  const attachment = new Attachment(
    'a',
    {
      hello: () => told.push('hello'),
      output: () => undefined,
      size: () => undefined,
      writer: () => undefined,
      refused: () => undefined,
      end: (reason) => told.push(`end: ${reason}`),
      cut: () => told.push('cut'),
    },
    async () => allowed(),
  );
  return { attachment, told };
}

/** The server says why, and closes. */
async function end(reason: string) {
  const socket = FakeSocket.all.at(-1)!;
  socket.say({ type: 'end', reason });
  socket.onclose!();
  await settle();
}

test('a terminal goes on after the next sign-in', async () => {
  const { attachment, told } = attach(() => {
    standing.value = 'signed-out';
    return true;
  });
  await end('the sign-in has ended');
  await elapse();
  assert.deepEqual([FakeSocket.all.length, told], [1, ['cut']]);
  standing.value = 'signed-in';
  assert.equal(FakeSocket.all.length, 2);
  FakeSocket.all[1]!.say({ type: 'hello' });
  assert.deepEqual(told, ['cut', 'hello']);
  attachment.close();
  standing.value = 'signed-out';
  standing.value = 'signed-in';
  assert.equal(FakeSocket.all.length, 2);
});

test('a terminal that is over stays over', async () => {
  const { attachment, told } = attach(() => true);
  await end('the agent has ended');
  await elapse();
  standing.value = 'signed-out';
  standing.value = 'signed-in';
  assert.deepEqual([FakeSocket.all.length, told], [1, ['end: the agent has ended']]);
  attachment.close();
});

test('one that is cut is tried again, unless there is nothing any more', async () => {
  let there = true;
  const { attachment, told } = attach(() => there);
  FakeSocket.all[0]!.onclose!();
  await settle();
  await elapse();
  assert.equal(FakeSocket.all.length, 2);
  there = false;
  FakeSocket.all[1]!.onclose!();
  await settle();
  await elapse();
  assert.deepEqual([FakeSocket.all.length, told], [2, ['cut', 'cut', 'end: It is no longer live.']]);
  attachment.close();
});

test('a process without a terminal is not watched, a session is', () => {
  assert.equal(watchable({ kind: 'backend', terminal: false }), false);
  assert.equal(watchable({ kind: 'backend', terminal: true }), true);
  assert.equal(watchable({ kind: 'session', terminal: false }), true);
});
