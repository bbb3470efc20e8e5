// Reading in the console: hits of the memory, titles, time ranges.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { close, Hob, launch, PHONE, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

function it(name, body) {
  test(name, { timeout: 90_000 }, async () => {
    const hob = new Hob();
    try {
      await hob.start();
      await body(hob);
    } finally {
      await hob.stop();
    }
  });
}

for (const [where, options] of [['desk', { viewport: { width: 1400, height: 900 } }], ['phone', PHONE]]) {
  it(`an opened hit can be read whole, on a ${where}`, async (hob) => {
    const lines = Array.from({ length: 9 }, (_, at) => `Line ${at + 1} of what was said about the crane.`).join('\n');
    const turns = Array.from({ length: 12 }, (_, at) => [at % 2 ? 'assistant' : 'user', `Turn ${at} about something else, which fills the context of the hit.`]);
    hob.remember([...turns, ['user', `${lines}\nThe key is ghp_0123456789abcdefghijABCDEFGHIJ012345 at last.`]]);
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
    const over = await page.evaluate(() => document.querySelector('main').scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `${over} pixels too wide`);
    await close(page);
  });

  it(`hits stand together by session, on a ${where}`, async (hob) => {
    const said = (what, times) => Array.from({ length: times }, (_, at) => ['user', `The ${what} number ${at} is about the harbour.`]);
    hob.remember(said('crane', 8), '0197a2f4-1111-4d7e-9a55-3f8b1c2d4e5f', '/home/ada/src/docks');
    hob.remember(said('ship', 2), '0197a2f4-2222-4d7e-9a55-3f8b1c2d4e5f', '/home/ada/src/fleet');
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
    await close(page);
  });
}

it('the palette finds sessions by their titles', async (hob) => {
  const id = await hob.session('acp', { meta: { title: 'Coupons are counted twice' } });
  await hob.session('acp', { meta: { title: 'Something else' } });
  const page = await visit(browser, hob, '/now');
  await page.keyboard.press('Control+k');
  await page.keyboard.type('coupon');
  await page.getByRole('option', { name: /Coupons are counted twice/ }).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: /Coupons are counted twice/ }).waitFor();
  assert.ok(page.url().endsWith(id));
  await close(page);
});

it('usage is shown for other time ranges', async (hob) => {
  const token = await hob.app('shop-bot');
  const { session_id: id } = await hob.call('POST', '/sessions', { agent: 'acp' }, token);
  await hob.call('POST', `/sessions/${id}/turn`, { prompt: 'hello' }, token);
  const page = await visit(browser, hob, '/apps');
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
  await close(page);
});
