import assert from 'node:assert/strict';
import test from 'node:test';

import { answer, FakeSource, frame, requests, reset, settle } from './browser';
import { standing } from '../src/api';
import { EventLog } from '../src/events/log';
import type { LogEvent } from '../src/shapes';

const event = (seq: number): LogEvent => ({ seq, at: '2026-11-15T09:00:00Z', event: 'notice', text: `the ${seq}th` });
const events = (from: number, to: number) => ({ events: Array.from({ length: to - from + 1 }, (_, at) => event(from + at)) });
const tell = (...numbers: number[]) => {
  for (const seq of numbers) FakeSource.open[0]!.say('notice', seq, { text: `the ${seq}th` });
};
const last = (log: EventLog, count: number) => log.blocks.slice(-count).map((block) => block.last);

/** A log with as many blocks as are kept, which one reads further up, with one event that is not shown. */
async function reading(): Promise<EventLog> {
  reset();
  standing.value = 'signed-in';
  const log = new EventLog('/s');
  void log.start(2_401, true);
  await answer('/s/events?before=2402&limit=400', events(2, 2_401));
  log.following = false;
  tell(2_402);
  frame();
  assert.deepEqual([log.missed.value, last(log, 1)], [1, [2_401]]);
  return log;
}

test('what comes while the end is loaded does not displace what is fetched', async () => {
  const log = await reading();
  void log.jumpToEnd();
  // Heard while the page is on its way, and not in it.
  tell(2_403, 2_404);
  frame();
  await answer('/s/events?before=2403&limit=400', events(2_003, 2_402));
  // The two are fetched; meanwhile the next comes, and a frame with it.
  tell(2_405);
  frame();
  assert.deepEqual(last(log, 1), [2_402]);
  await answer('/s/events?after=2402&limit=400', events(2_403, 2_404));
  await answer('/s/events?after=2404&limit=400', events(2_405, 2_405));
  frame();
  assert.deepEqual(last(log, 4), [2_402, 2_403, 2_404, 2_405]);
  // From here on it is followed again.
  tell(2_406);
  frame();
  assert.deepEqual([...last(log, 2), log.missed.value, requests.length], [2_405, 2_406, 0, 0]);
  log.stop();
});

test('very many events without a frame do not displace it either', async () => {
  const log = await reading();
  void log.jumpToEnd();
  tell(2_403);
  await answer(/before=2403/, events(2_003, 2_402));
  tell(...Array.from({ length: 1_100 }, (_, at) => 2_404 + at));
  assert.deepEqual(last(log, 1), [2_402]);
  await answer('/s/events?after=2402&limit=400', events(2_403, 2_802));
  await answer('/s/events?after=2802&limit=400', events(2_803, 3_202));
  await answer('/s/events?after=3202&limit=400', events(3_203, 3_503));
  frame();
  const shown = last(log, 1_100);
  assert.deepEqual([shown[0], shown.at(-1), new Set(shown).size], [2_404, 3_503, 1_100]);
  log.stop();
});

test('who scrolls up while the end is loaded misses nothing later', async () => {
  const log = await reading();
  void log.jumpToEnd();
  tell(2_403);
  await answer(/before=2403/, events(2_003, 2_402));
  log.following = false;
  tell(2_404);
  await answer('/s/events?after=2402&limit=400', events(2_403, 2_403));
  frame();
  assert.deepEqual([log.loading.value, log.missed.value, ...last(log, 1)], [false, 1, 2_403]);
  void log.jumpToEnd();
  await answer('/s/events?before=2405&limit=400', events(2_005, 2_404));
  frame();
  assert.deepEqual([log.missed.value, ...last(log, 2)], [0, 2_403, 2_404]);
  log.stop();
});

test('an older page that comes after one has gone to the end is not put in front of it', async () => {
  reset();
  const log = new EventLog('/s');
  void log.start(3_000, true);
  await answer(/before=3001/, events(600, 3_000));
  log.following = false;
  tell(3_001);
  frame();
  void log.loadOlder();
  void log.jumpToEnd();
  const [older] = requests.splice(0, 1);
  await answer(/before=3002/, events(2_602, 3_001));
  await older!.answer(200, events(200, 599));
  await settle();
  assert.deepEqual([log.blocks[0]!.first, log.blocks.length], [2_602, 400]);
  log.stop();
});

test('the session itself is asked whether its stream goes on', async () => {
  const log = await reading();
  FakeSource.open[0]!.onerror!();
  await answer('/s', {}, 404);
  assert.equal(FakeSource.open.length, 0);
  log.stop();
});
