// Reading in the console: answers in Markdown, hits of the memory, titles, time ranges.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { assertView, close, Hob, inViews, launch, until, VIEWS, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** What is only read is looked at in several views on one server. */
function it(name, views, prepare, body) {
  test(name, { timeout: 90_000 }, () => inViews(views, new Hob(), prepare, body));
}

const MARKDOWN = [
  '# Ports',
  'It is *quick*, ~~slow~~ and **bold with `code`**, see https://example.com/a.',
  '3. Read [the *notes*](https://example.com/notes)\n   - inner\n     ```sh\n     echo a line that is far too long for a phone, so that it has to be scrolled sideways to be read at all\n     ```\n4. [https://good.example](https://evil.example/x)',
  '- [x] done\n- [ ] open',
  '> quoted\n> **words**',
  '---',
  '| name | port | what it is for, with many words that make the table wide | where |\n|---|---|---|---|\n| hob | 7717 | x | <https://example.com/b> |',
  '#### Never <img src=x onerror=alert(1)> [link](javascript:alert(3))',
].join('\n\n');

it('an answer in Markdown has its form', VIEWS, async (hob) => {
  const id = await hob.session();
  await hob.ask(id, `[[say ${MARKDOWN}]]`);
  await hob.idle(id);
  return id;
}, async (hob, options, id) => {
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  // The prompt has the same words.
  const answer = page.locator('.said');
  await answer.getByRole('cell', { name: '7717' }).waitFor();
  await answer.getByRole('heading', { name: 'Ports', level: 3 }).waitFor();
  await answer.getByRole('heading', { name: 'Never', level: 6 }).waitFor();
  assert.deepEqual(await answer.locator('em, del, strong code, blockquote strong').allTextContents(), ['quick', 'slow', 'code', 'notes', 'words']);
  assert.equal(await answer.locator('ol').getAttribute('start'), '3');
  assert.equal(await answer.locator('ol > li').count(), 2);
  assert.match(await answer.locator('ol ul pre').textContent(), /^echo a line/);
  assert.equal(await answer.getByRole('separator').count(), 1);
  await answer.getByRole('listitem').filter({ has: page.getByRole('img', { name: 'done' }) }).getByText('done').waitFor();
  await answer.getByRole('img', { name: 'to do' }).waitFor();
  // A link says where it goes, whatever its text says.
  const links = await answer.getByRole('link').evaluateAll((all) => all.map((link) => [link.textContent, link.href, link.title, link.rel]));
  const rel = 'noreferrer noopener';
  assert.deepEqual(links, [
    ['https://example.com/a', 'https://example.com/a', 'https://example.com/a', rel],
    ['the notes (example.com)', 'https://example.com/notes', 'https://example.com/notes', rel],
    ['https://good.example (evil.example)', 'https://evil.example/x', 'https://evil.example/x', rel],
    ['https://example.com/b', 'https://example.com/b', 'https://example.com/b', rel],
  ]);
  await answer.getByText('[link](javascript:alert(3))').waitFor();
  assert.equal(await answer.locator('img').count(), 0);
  await assertView(page, options);
  await close(page);
});

it('an opened hit can be read whole', VIEWS, (hob) => {
  const lines = Array.from({ length: 9 }, (_, at) => `Line ${at + 1} of what was said about the crane.`).join('\n');
  const turns = Array.from({ length: 12 }, (_, at) => [at % 2 ? 'assistant' : 'user', `Turn ${at} about something else, which fills the context of the hit.`]);
  hob.remember([...turns, ['user', `${lines}\nThe key is ghp_0123456789abcdefghijABCDEFGHIJ012345 at last.`]]);
}, async (hob, options) => {
  const page = await visit(browser, hob, '/memory?q=crane', options);
  await page.locator('.hit').filter({ hasText: 'crane' }).first().click();
  const text = page.locator('.detail-text');
  await page.locator('.timeline li').nth(5).waitFor();
  const seen = () => text.evaluate((element) => ({ shown: element.clientHeight, whole: element.scrollHeight, line: parseFloat(getComputedStyle(element).lineHeight) }));
  const before = await seen();
  assert.ok(before.shown >= 10 * before.line - 1 && before.whole <= before.shown + 1, JSON.stringify(before));
  // A secret that is unsealed is on a line that is seen.
  await page.getByRole('button', { name: 'Unseal' }).click();
  await text.getByText('ghp_0123456789').waitFor();
  const after = await seen();
  assert.ok(after.whole <= after.shown + 1, JSON.stringify(after));
  await assertView(page, options);
  await close(page);
});

it('more than 30 hits are shown on request', VIEWS, (hob) => {
  for (let session = 0; session < 5; session += 1) {
    hob.remember(Array.from({ length: 8 }, (_, at) => ['user', `The crane number ${session * 8 + at} stands in the harbour.`]), `0197a2f4-${session}111-4d7e-9a55-3f8b1c2d4e5f`);
  }
}, async (hob, options) => {
  const page = await visit(browser, hob, '/memory', options);
  await page.getByText('The newest turns').waitFor();
  // Folded groups have the rest of their turns.
  const hits = async () => {
    const folded = await page.locator('.hit-group button').filter({ hasText: 'more turn' }).allTextContents();
    return (await page.locator('.hit').count()) + folded.reduce((sum, text) => sum + Number(/\d+/.exec(text)), 0);
  };
  assert.equal(await hits(), 30);
  await page.getByRole('button', { name: 'Show more' }).click();
  await until('all are there', async () => (await hits()) === 40);
  await page.getByRole('button', { name: 'Show more' }).waitFor({ state: 'detached' });
  await assertView(page, options);
  await close(page);
});

it('hits stand together by session', VIEWS, (hob) => {
  const said = (what, times) => Array.from({ length: times }, (_, at) => ['user', `The ${what} number ${at} is about the harbour.`]);
  hob.remember(said('crane', 8), '0197a2f4-1111-4d7e-9a55-3f8b1c2d4e5f', '/home/ada/src/docks');
  hob.remember(said('ship', 2), '0197a2f4-2222-4d7e-9a55-3f8b1c2d4e5f', '/home/ada/src/fleet');
}, async (hob, options) => {
  const page = await visit(browser, hob, '/memory', options);
  const groups = page.locator('.hit-group');
  await groups.nth(1).waitFor();
  assert.equal(await groups.count(), 2);
  const docks = groups.filter({ hasText: 'docks' });
  assert.equal(await docks.locator('.hit').count(), 4);
  await docks.getByRole('button', { name: /4 more turns of this session/ }).click();
  assert.equal(await docks.locator('.hit').count(), 8);
  // The filters have their names, also where there is little room.
  for (const name of ['Project', 'Client', 'From', 'Until']) assert.ok(await page.locator('.filters').getByText(name, { exact: true }).isVisible(), name);
  await assertView(page, options);
  await close(page);
});

it('the memory of an app is read apart from one\'s own', VIEWS, async (hob) => {
  const token = await hob.app('shop-bot');
  const { session_id: id } = await hob.call('POST', '/sessions', { agent: 'acp' }, token);
  await hob.call('POST', `/sessions/${id}/turn`, { prompt: 'where is the lantern of the shop?' }, token);
  await until('the turn is remembered', async () => (await hob.call('GET', '/admin/memory/search?app=shop-bot&q=lantern')).hits.length > 0);
  hob.remember([['user', 'my own lantern hangs in the hall']]);
}, async (hob, options) => {
  const page = await visit(browser, hob, '/memory?q=lantern', options);
  const hits = page.locator('.hits[aria-busy="false"] .hit');
  await hits.filter({ hasText: 'my own lantern' }).waitFor();
  assert.equal(await hits.filter({ hasText: 'lantern of the shop' }).count(), 0);
  await page.getByLabel(/^Memory/).selectOption('shop-bot');
  await hits.filter({ hasText: 'lantern of the shop' }).first().waitFor();
  assert.equal(await hits.filter({ hasText: 'my own lantern' }).count(), 0);
  await page.getByText('in the memory of shop-bot').waitFor();
  await page.locator('.group-head').getByText('app shop-bot').first().waitFor();
  assert.ok(page.url().includes('app=shop-bot'));
  // It is read, and not changed.
  await hits.filter({ hasText: 'lantern of the shop' }).first().click();
  const detail = page.getByRole('complementary', { name: 'The chosen turn' });
  await detail.getByText('You can only read an app’s memory.').waitFor();
  await detail.locator('.timeline li').first().waitFor();
  for (const name of ['Correct', 'Forget', 'Unseal', 'Forget the session']) assert.equal(await detail.getByRole('button', { name, exact: true }).count(), 0, name);
  await assertView(page, options);
  await close(page);
});

it('sessions are found by their titles or first prompts, and tiles show them', VIEWS, async (hob) => {
  await hob.session('acp', { meta: { title: 'Something else' } });
  const prompted = await hob.session('acp');
  await hob.ask(prompted, 'Why does the crane stand still?\n[[say It waits for the ship.]]');
  await hob.idle(prompted);
  const token = await hob.app('shop-bot');
  await hob.call('POST', '/v1/messages', { model: 'claude', max_tokens: 9, messages: [{ role: 'user', content: '[[say hello]]' }] }, token);
  const titled = await hob.session('acp', { meta: { title: 'Coupons are counted twice' } });
  return { prompted, titled };
}, async (hob, options, { prompted, titled }) => {
  const page = await visit(browser, hob, '/now', options);
  await page.locator('.tile').getByText('Coupons are counted twice').waitFor();
  const tile = page.locator('.tile').filter({ hasText: 'Why does the crane stand still?' });
  // Without a terminal a tile is as high as what was said: nothing is empty, and nothing is cut.
  const told = tile.getByRole('group', { name: 'The last events of acp' });
  await told.getByText('It waits for the ship.').waitFor();
  const height = async (part) => (await part.boundingBox()).height;
  assert.ok(Math.abs((await height(tile.locator('.tile-screen'))) - (await height(told))) <= 2);
  assert.ok((await height(told)) < 200);
  // The figures say what they count: turns of sessions, and answers of /v1.
  const figure = (label) => page.locator('.figure').filter({ hasText: label });
  await figure('session turn finished').getByText('1', { exact: true }).waitFor();
  const answers = /answers so far: (\d+) warm, (\d+) seeded, (\d+) fresh/.exec(await figure('for /v1').textContent());
  assert.equal(answers.slice(1).reduce((sum, text) => sum + Number(text), 0), 1);
  await assertView(page, options);
  for (const [words, title, id] of [['coupon', 'Coupons are counted twice', titled], ['crane stand', 'Why does the crane stand still?', prompted]]) {
    await page.evaluate(() => { location.hash = '/now'; });
    await tile.waitFor();
    if (options.isMobile) await page.locator('.topbar').getByRole('button', { name: 'Find' }).tap();
    else await page.keyboard.press('Control+k');
    await page.getByRole('combobox').pressSequentially(words);
    const found = page.getByRole('option', { name: title });
    await found.waitFor();
    await assertView(page, options);
    if (options.isMobile) await found.tap();
    else await page.keyboard.press('Enter');
    await until('the session is open', () => page.url().endsWith(id));
  }
  await page.evaluate(() => { location.hash = '/sessions'; });
  const row = page.getByRole('list', { name: 'Sessions' }).getByRole('link', { name: 'Why does the crane stand still?' });
  await row.getByText(/^acp in /).waitFor();
  await page.getByLabel('Filter sessions').fill('crane stand');
  await page.getByText('Coupons are counted twice').waitFor({ state: 'detached' });
  await row.waitFor();
  await assertView(page, options);
  await close(page);
});

it('usage is shown for other time ranges', VIEWS, async (hob) => {
  const token = await hob.app('shop-bot');
  const { session_id: id } = await hob.call('POST', '/sessions', { agent: 'acp' }, token);
  await hob.call('POST', `/sessions/${id}/turn`, { prompt: 'hello' }, token);
}, async (hob, options) => {
  const page = await visit(browser, hob, '/apps', options);
  await page.getByRole('img', { name: 'Turns: 1 in 30 days' }).waitFor();
  const ranges = page.getByRole('group', { name: 'Time range' });
  await ranges.getByRole('button', { name: '7 days' }).click();
  await page.getByRole('img', { name: 'Turns: 1 in 7 days' }).waitFor();
  await ranges.getByRole('button', { name: '1 year' }).click();
  const chart = page.getByRole('img', { name: 'Turns: 1 in a year' });
  await chart.waitFor();
  assert.equal(await chart.locator('.bar').count(), 53);
  // The bars are read with the arrow keys.
  await chart.focus();
  await page.keyboard.press('ArrowLeft');
  await page.locator('.chart').first().getByText(/^week of/).waitFor();
  await assertView(page, options);
  await close(page);
});

it('the cost of Claude on a terminal is seen', VIEWS, async (hob) => {
  const id = await hob.session('claude');
  await hob.ask(id, '[[cost 0.25]] [[say an answer]]');
  await until('the cost is known', async () => (await hob.call('GET', `/admin/sessions/${id}`)).usage.cost_usd === 0.25);
  return id;
}, async (hob, options, id) => {
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  const facts = page.locator('.session-facts');
  await facts.getByText('$0.25').waitFor();
  await facts.getByText(/^\d+ tokens$/).waitFor();
  await page.locator('.turn-end').getByText('$0.25').waitFor();
  await assertView(page, options);
  await close(page);
});

it('a session says that its agent reports no cost', VIEWS, async (hob) => {
  const id = await hob.session('claude');
  await hob.ask(id, '[[say an answer]]');
  await hob.idle(id);
  return id;
}, async (hob, options, id) => {
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  const facts = page.locator('.session-facts');
  await facts.getByText('no cost reported').waitFor();
  await facts.getByText(/^\d+ tokens$/).waitFor();
  assert.equal(await page.getByText('$').count(), 0);
  await assertView(page, options);
  await close(page);
});
