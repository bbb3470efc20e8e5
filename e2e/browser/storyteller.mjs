// An ACP agent that plays a small, realistic piece of work, for the screenshots of the documentation.
import { createInterface } from 'node:readline';
import { randomUUID } from 'node:crypto';

const story = process.argv[2] ?? 'fix';
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const answers = new Map();
let requests = 0;
let cancelled = false;

function update(sessionId, sessionUpdate, fields) {
  send({ method: 'session/update', params: { sessionId, update: { sessionUpdate, ...fields } } });
}

const text = (value) => ({ content: { type: 'text', text: value } });

async function speak(session, kind, words) {
  for (const piece of words.match(/\S+\s*/g) ?? []) {
    if (cancelled) return;
    update(session, kind, text(piece));
    await wait(4);
  }
}

function tool(session, id, title, kind, rawInput) {
  update(session, 'tool_call', { toolCallId: id, title, kind, status: 'in_progress', rawInput });
  return (output, status = 'completed') =>
    update(session, 'tool_call_update', {
      toolCallId: id,
      status,
      content: Array.isArray(output) ? output : [{ type: 'content', content: { type: 'text', text: output } }],
    });
}

function ask(session, title, call) {
  const id = (requests += 1);
  send({
    id,
    method: 'session/request_permission',
    params: {
      sessionId: session,
      toolCall: { toolCallId: call, title },
      options: [
        { optionId: 'once', name: 'Allow once', kind: 'allow_once' },
        { optionId: 'always', name: 'Always allow', kind: 'allow_always' },
        { optionId: 'no', name: 'Reject', kind: 'reject_once' },
      ],
    },
  });
  return new Promise((resolve) => answers.set(id, resolve));
}

const STORIES = {
  async fix(session) {
    const plan = (done) =>
      update(session, 'plan', {
        entries: ['Find the failing test', 'Fix the rounding of refunds', 'Run the whole suite'].map((content, at) => ({
          content,
          priority: 'medium',
          status: at < done ? 'completed' : at === done ? 'in_progress' : 'pending',
        })),
      });
    await speak(session, 'agent_thought_chunk', 'The refund total is off by one cent. That smells of rounding each line instead of the sum.');
    plan(0);
    const grep = tool(session, 'call-1', 'Search', 'search', { command: "rg -n 'round' src/billing" });
    await wait(60);
    grep('src/billing/refund.ts:41:  return lines.map((line) => Math.round(line.amount * rate))\nsrc/billing/invoice.ts:18:  return Math.round(sum(lines))');
    plan(1);
    await speak(session, 'agent_message_chunk', 'Found it. `refund.ts` rounds **every line** and then adds them up, while the invoice rounds the sum:\n\n```ts\n// before\nreturn sum(lines.map((line) => Math.round(line.amount * rate)));\n// after\nreturn Math.round(sum(lines.map((line) => line.amount * rate)));\n```\n\n');
    const edit = tool(session, 'call-2', 'Edit src/billing/refund.ts', 'edit', { path: 'src/billing/refund.ts' });
    await wait(50);
    edit([{ type: 'diff', path: 'src/billing/refund.ts', oldText: 'Math.round(line.amount * rate)', newText: 'line.amount * rate' }]);
    plan(2);
    const call = 'call-3';
    const done = tool(session, call, 'Run npm test -- billing', 'execute', { command: 'npm test -- billing' });
    const answer = await ask(session, 'Run npm test -- billing', call);
    if (cancelled || answer === 'no') return done('not run', 'failed');
    await wait(80);
    done(' ✓ billing/refund.test.ts (14 tests)\n ✓ billing/invoice.test.ts (22 tests)\n\n Test Files  2 passed (2)\n      Tests  36 passed (36)');
    plan(3);
    await speak(session, 'agent_message_chunk', 'All 36 billing tests pass. The refund of order 1043 now comes to 19.99, as the invoice says.');
  },
  async review(session) {
    await speak(session, 'agent_thought_chunk', 'Three files changed. The migration is the risky one.');
    const read = tool(session, 'call-1', 'Read migrations/0007_orders.sql', 'read', { path: 'migrations/0007_orders.sql' });
    await wait(40);
    read('ALTER TABLE orders ADD COLUMN currency TEXT NOT NULL DEFAULT \'EUR\';');
    await speak(session, 'agent_message_chunk', 'The migration is safe: the column has a default, so old rows stay valid. Two things I would change *before* merging:\n\n1. `currency` should be checked against the list in `config/currencies.ts`:\n   ```ts\n   if (!CURRENCIES.has(order.currency)) throw new UnknownCurrency(order.currency);\n   ```\n2. The index on `(customer, created_at)` is never used by a query; leave it out.\n\n| file | risk |\n|---|---|\n| `migrations/0007_orders.sql` | none, ~~if the table is small~~ also for large tables |\n| `src/orders/create.ts` | see 1 |\n\nThe rule is in [our notes on migrations](https://example.com/notes/migrations).');
  },
  async watch(session) {
    await speak(session, 'agent_message_chunk', 'Watching the nightly build. ');
    for (let at = 1; at <= 2000 && !cancelled; at += 1) {
      const done = tool(session, `call-${at}`, `Check shard ${at}`, 'execute', { command: `ci status --shard ${at}` });
      await wait(700);
      done(`shard ${at}: green`);
      await speak(session, 'agent_message_chunk', `Shard ${at} is green. `);
      await wait(900);
    }
  },
};

createInterface({ input: process.stdin }).on('line', async (line) => {
  const message = JSON.parse(line);
  const { id, method, params } = message;
  const reply = (result) => send({ id, result });
  if (!method) {
    answers.get(message.id)?.(message.result?.outcome?.optionId ?? 'no');
    return;
  }
  if (method === 'initialize') return reply({ protocolVersion: 1, agentCapabilities: { loadSession: true }, authMethods: [] });
  if (method === 'session/new') return reply({ sessionId: randomUUID() });
  if (method === 'session/load') return reply({});
  if (method === 'session/cancel') {
    cancelled = true;
    for (const resolve of answers.values()) resolve('no');
    return;
  }
  if (method === 'session/prompt') {
    cancelled = false;
    await STORIES[story](params.sessionId);
    return reply({ stopReason: cancelled ? 'cancelled' : 'end_turn', usage: { inputTokens: 18_240, outputTokens: 1_312, totalTokens: 19_552 } });
  }
  if (id !== undefined) send({ id, error: { code: -32601, message: 'Method not found' } });
});
