import assert from 'node:assert/strict';
import test from 'node:test';

import { age, costOf, count, day, dollars, place, saidBy, span } from '../src/format';
import { marked, meets, reasonTerms, terms } from '../src/highlight';
import { isReport } from '../src/terminal/report';
import { spoken } from '../src/terminal/spoken';
import { ceiling, lastDays } from '../src/ui/chart';

test('words that match are marked, grown ones too', () => {
  const found = marked('The login test failed. Logins fail.', terms('login failed')).filter((piece) => piece.hit);
  assert.deepEqual(found.map((piece) => piece.text), ['login', 'failed', 'Logins', 'fail']);
  assert.ok(meets('deployed', 'deploy') && meets('deploy', 'deployment') && !meets('tests', 'te') && !meets('there', 'the'));
});

test('common words of a question are not marked', () => {
  assert.deepEqual(terms('when is the release of the crane'), ['release', 'crane']);
  assert.deepEqual(terms('who is it'), ['who', 'is', 'it']);
});

test('a turn of an app is not said by the owner', () => {
  assert.equal(saidBy({ role: 'user' }), 'you');
  assert.equal(saidBy({ role: 'user', app: 'shop-bot' }), 'shop-bot');
  assert.equal(saidBy({ role: 'assistant', app: 'shop-bot' }), 'assistant');
});

test('a long text is shown around its matches, and nothing is lost in between', () => {
  const text = `${'nothing here '.repeat(200)}the needle is here ${'and on '.repeat(200)}`;
  const found = marked(text, ['needle']);
  const shown = found.map((piece) => piece.text).join('');
  assert.ok(shown.length < 500 && shown.startsWith('… ') && shown.endsWith(' …'));
  assert.ok(found.some((piece) => piece.hit && piece.text === 'needle'));
  assert.equal(marked('plain <b>text</b>', []).map((piece) => piece.text).join(''), 'plain <b>text</b>');
});

test('a reason names its words', () => {
  assert.deepEqual(reasonTerms('matches login, test; superseded by a correction'), ['login', 'test']);
  assert.deepEqual(reasonTerms('similar wording'), []);
});

test('what a terminal answers by itself is no typing', () => {
  const reports = ['\x1b[?1;2c', '\x1b[>0;276;0c', '\x1b[0n', '\x1b[12;40R', '\x1b[?12;40R', '\x1b[?2026;2$y', '\x1b[I', '\x1b[O', '\x1b[<0;3;4M', '\x1b]11;rgb:0000/0000/0000\x1b\\', '\x1bP1$r0m\x1b\\', '\x1b[8;24;80t'];
  for (const report of reports) assert.ok(isReport(report), JSON.stringify(report));
  const typed = ['a', '\r', '\x03', '\x1b', '\x1b[A', '\x1bOA', '\x1b[Z', '\x1b[3~', '\x1b[200~text\x1b[201~', '\x1bb', '\x1b[1;5C', '\x1b]', '\x1bP', 'ü', '\x7f'];
  for (const key of typed) assert.ok(!isReport(key), JSON.stringify(key));
});

test('of a screen the lines are shown that say something', () => {
  const screen = '● one  \n\n● two\n\n╭────╮\n│ > a│\n╰────╯\n';
  assert.deepEqual(spoken(screen, 9), ['● one', '● two', '│ > a│']);
  assert.deepEqual(spoken(screen, 1), ['│ > a│']);
  assert.deepEqual(spoken('', 9), []);
});

test('numbers for people', () => {
  assert.deepEqual([span(400), span(4_200), span(61_000), span(3_600_000 * 3 + 60_000 * 20)], ['400 ms', '4.2 s', '1 min', '3 h 20 min']);
  assert.deepEqual([count(950), count(19_552), count(3_100_000)], ['950', '19.6 k', '3.1 M']);
  assert.deepEqual([dollars(0), dollars(0.004), dollars(1.5)], ['$0', '<$0.01', '$1.50']);
  assert.equal(age('2026-11-15T09:00:00Z', Date.parse('2026-11-15T09:00:42Z')), '42 s');
  assert.equal(day('2026-11-05'), '5 Nov');
  assert.equal(place(`/x/workspaces/${'0a'.repeat(16)}`), 'own folder');
});

test('tokens without a cost say so', () => {
  const usage = { input_tokens: 10, output_tokens: 5, cached_read_tokens: 0, cached_write_tokens: 0 };
  assert.equal(costOf({ ...usage, cost_usd: 0.25 }), '$0.25');
  assert.equal(costOf({ ...usage, cost_usd: 0 }), 'no cost reported');
  assert.equal(costOf({ ...usage, input_tokens: 0, output_tokens: 0, cost_usd: 0 }), '');
});

test('scales end at round numbers, days have no gap', () => {
  assert.deepEqual([ceiling(0), ceiling(7), ceiling(10), ceiling(23), ceiling(0.3)].map((n) => Math.round(n * 100) / 100), [0, 8, 10, 40, 0.4]);
  const days = lastDays(31, new Date('2026-03-01T12:00:00Z'));
  assert.deepEqual([days.length, days[0], days.at(-1)], [31, '2026-01-30', '2026-03-01']);
});
