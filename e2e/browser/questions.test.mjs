// Questions of agents on the cards, and edits as diffs, on a desk and on a phone, dark and light.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { assertView, close, Hob, inViews, launch, until, VIEWS, visit } from './harness.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** A test of one session in every view, on one server. The session of a view is closed before the next one. */
function it(name, more, body) {
  test(name, { timeout: 120_000 }, () =>
    inViews(VIEWS, new Hob(), () => undefined, async (hob, options) => {
      const id = await hob.session('acp', more);
      await body(hob, options, id);
      await hob.call('DELETE', `/admin/sessions/${id}`);
    }),
  );
}

const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];

/** Words by which the scripted agent asks for permission for a tool call. */
const question = (toolCall) => `[[request session/request_permission ${JSON.stringify({ toolCall, options: OPTIONS })}]]`;

const COMMAND = 'rm -rf .terraform && terraform init -backend-config=environments/production/europe-west.tfvars';
const RUN = question({ toolCallId: 'run', title: `Bash: ${COMMAND}`, kind: 'execute', rawInput: { command: COMMAND } });
const CHANGE = question({
  toolCallId: 'change',
  title: 'Edit src/refund.ts',
  kind: 'edit',
  content: [{ type: 'diff', path: '/src/refund.ts', oldText: 'one\nround(line)\nthree\n', newText: 'one\nround(sum)\nthree\n' }],
});

/** Asserts that nothing is wider than the window and, on a phone, that buttons are large enough for a thumb. */
async function assertFits(page, options) {
  await assertView(page, options);
  if (!options.isMobile) return;
  for (const button of await page.locator('.ask-buttons button').all()) {
    const box = await button.boundingBox();
    assert.ok(box.height >= 40 && box.x >= 0 && box.x + box.width <= 390, JSON.stringify(box));
  }
}

it('a question is answered on the card of its session', { permissions: 'ask' }, async (hob, options, id) => {
  const page = await visit(browser, hob, '/now', options);
  await hob.ask(id, `${RUN} ${CHANGE}`);
  const tile = page.locator('.tile');
  const first = tile.getByRole('group', { name: /May it\? Bash/ });
  await first.getByText(COMMAND, { exact: true }).waitFor();
  // A session that waits for a person is not one at work.
  await tile.getByText('waiting', { exact: true }).waitFor();
  assert.equal(await tile.getByText('running', { exact: true }).count(), 0);
  await assertFits(page, options);
  if (options.isMobile) {
    const question = await first.boundingBox();
    const figures = await page.locator('.figures').boundingBox();
    assert.ok(question.y < figures.y && question.y < 500, 'the question comes first');
  }
  await first.getByRole('button', { name: 'Allow' }).click();
  // The next one is a change, shown as its lines.
  const second = tile.getByRole('group', { name: 'May it? Edit src/refund.ts' });
  await second.locator('del').getByText('round(line)').waitFor();
  await second.locator('ins').getByText('round(sum)').waitFor();
  assert.equal(await second.locator('del').count(), 1);
  // The list of sessions has the question, too.
  await page.evaluate(() => { location.hash = '/sessions'; });
  const row = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await row.getByText('waiting', { exact: true }).waitFor();
  await assertFits(page, options);
  // By the keyboard alone.
  await row.locator('ins').waitFor();
  await row.getByRole('button', { name: 'Reject' }).focus();
  await page.keyboard.press('Enter');
  await row.getByRole('button', { name: 'Reject' }).waitFor({ state: 'detached' });
  await hob.idle(id);
  await page.evaluate((hash) => { location.hash = hash; }, `/sessions/${id}`);
  const answered = page.locator('.said');
  await answered.getByText('"optionId":"yes"').waitFor();
  await answered.getByText('"optionId":"no"').waitFor();
  await close(page);
});

it('edits are shown as diffs', {}, async (hob, options, id) => {
  const edit = { file_path: '/src/queue.ts', old_string: 'keep\nretries.set(job)\nkeep too', new_string: 'keep\nretries.delete(job)\nkeep too' };
  const write = { file_path: '/src/new.ts', content: 'export const one = 1;\n' };
  const several = { file_path: '/src/many.ts', edits: [{ old_string: 'a', new_string: 'b' }, { old_string: 'c', new_string: 'd' }] };
  await hob.ask(id, `[[tool Edit ${JSON.stringify(edit)}]] [[tool Write ${JSON.stringify(write)}]] [[tool MultiEdit ${JSON.stringify(several)}]] [[say done]]`);
  await hob.idle(id);
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  const log = page.getByRole('log');
  await log.locator('del').getByText('retries.set(job)').waitFor();
  await log.locator('ins').getByText('retries.delete(job)').waitFor();
  await log.locator('ins').getByText('export const one = 1;').waitFor();
  assert.equal(await log.locator('.diff').count(), 4);
  await assertView(page, options);
  // It folds, and stays folded.
  await page.getByRole('button', { name: /^Edit/ }).click();
  await log.locator('del').getByText('retries.set(job)').waitFor({ state: 'detached' });
  await close(page);
});

it('a long prompt is folded, and the page says that the agent works', {}, async (hob, options, id) => {
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  await hob.ask(id, `${'many words of a prompt. '.repeat(200)} the end of the prompt [[say begun]] [[hang]]`);
  await page.getByRole('log').getByText('begun', { exact: true }).waitFor();
  await page.getByText('at work').waitFor();
  assert.equal(await page.locator('.turn-head').getByText('the end of the prompt').count(), 0);
  await assertView(page, options);
  // What is read and what is typed have one left edge. The scroll bar of the log takes some of its width.
  const left = async (part) => (await page.locator(part).first().boundingBox()).x;
  assert.ok(Math.abs((await left('.row > *')) - (await left('.composer textarea'))) <= 10);
  await page.getByRole('button', { name: /Show all .* characters/ }).click();
  await page.locator('.turn-head').getByText('the end of the prompt').waitFor();
  // This agent has no terminal, so there is no way to one.
  await until('the tab is gone', async () => (await page.getByRole('tab', { name: 'Terminal' }).count()) === 0);
  await hob.call('POST', `/admin/sessions/${id}/cancel`);
  await page.getByText('at work').waitFor({ state: 'detached' });
  await close(page);
});

it('a form of the agent is filled in', { permissions: 'ask' }, async (hob, options, id) => {
  const page = await visit(browser, hob, `/sessions/${id}`, options);
  const schema = '{"type":"object","required":["port"],"properties":{"port":{"type":"integer","title":"Port"},"remove":{"type":"string","enum":["a","b"],"default":"b"},"host":{"type":"string"}}}';
  const prompt = `[[request elicitation/create {"mode":"form","message":"Which port?","requestedSchema":${schema}}]]`;
  await hob.ask(id, prompt);
  const form = page.getByRole('group', { name: 'It asks: Which port?' });
  await form.getByRole('button', { name: 'Send' }).waitFor();
  await assertView(page, options);
  // A required field has to be filled in first.
  await form.getByRole('button', { name: 'Send' }).click();
  await form.getByLabel('Port').fill('8080');
  await form.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('log').getByText('{"action":"accept","content":{"port":8080,"remove":"b"}}').waitFor();
  await hob.idle(id);
  await hob.ask(id, prompt);
  await form.getByRole('button', { name: 'Decline' }).click();
  await page.getByRole('log').getByText('{"action":"decline"}').waitFor();
  await close(page);
});
