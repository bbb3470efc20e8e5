// Makes blocks of events, one after the other, in place.
import type { LogEvent } from '../shapes';
import type { AskBlock, Block, NoteBlock, Option, TextBlock, ToolBlock } from './block';
import { clip, cutAt, detailOf, editsOfContent, editsOfInput, pretty, tells, type Detail } from './detail';
import { array, number, object, string, type Json } from './json';

/** A text grows to this and then goes on in a block of its own, so that no row is ever huge. */
const TEXT = 6_000;
/** What is kept of a tool's input or output. */
const TOOL = 16_000;
/** What is kept of a message of another kind. */
const RAW = 4_000;

/** A place in a log from which it is read on. */
export class Reduction {
  readonly blocks: Block[] = [];
  /** The turn that runs, as far as the events tell. */
  turn: number | null = null;
  /** The turn that ended last. */
  ended = 0;
  private readonly tools = new Map<string, ToolBlock>();
  private readonly asks = new Map<string, AskBlock>();
  /** What questions are about that have not come yet, by their number. */
  private readonly details = new Map<string, Detail>();

  /** Takes the next event. The number must be greater than all before. */
  push(event: LogEvent): void {
    if (event.event === 'message') {
      this.message(event);
    } else if (event.event === 'turn') {
      this.end(event);
    } else if (event.event === 'permission') {
      this.permission(event);
    } else {
      this.note(event);
    }
  }

  /** Forgets the oldest blocks. */
  dropOldest(count: number): void {
    for (const block of this.blocks.splice(0, count)) this.unlink(block);
  }

  /** Forgets the newest blocks. */
  dropNewest(count: number): void {
    for (const block of this.blocks.splice(this.blocks.length - count, count)) this.unlink(block);
  }

  /** Puts what came before in front. What ends in one and goes on in the other is one again. */
  prepend(older: Reduction): void {
    for (const [call, tool] of older.tools) {
      const later = this.tools.get(call);
      if (later) {
        absorb(tool, later);
        const at = this.blocks.indexOf(later);
        if (at >= 0) this.blocks.splice(at, 1);
      }
      this.tools.set(call, tool);
    }
    for (const [request, ask] of older.asks) {
      const later = this.asks.get(request);
      // One with options is a question of its own: an agent that was started again counts from the beginning.
      if (later?.options.length) continue;
      if (later) {
        ask.status = later.status;
        ask.answer = later.answer;
        ask.by = later.by;
        ask.detail ??= later.detail;
        ask.last = later.last;
        ask.version += 1;
        const at = this.blocks.indexOf(later);
        if (at >= 0) this.blocks.splice(at, 1);
      }
      this.asks.set(request, ask);
    }
    const last = older.blocks.at(-1);
    const begins = this.blocks[0];
    if (begins?.kind === 'turn' && older.blocks.some((b) => b.turn === begins.turn)) this.blocks.shift();
    const first = this.blocks[0];
    if (last && first && isText(last) && isText(first) && last.kind === first.kind && last.turn === first.turn) {
      first.continues = true;
      first.version += 1;
    }
    this.blocks.unshift(...older.blocks);
  }

  private unlink(block: Block): void {
    if (block.kind === 'tool') this.tools.delete(block.call);
    if (block.kind === 'ask') this.asks.delete(block.request);
  }

  private base(event: LogEvent, prefix: string) {
    return {
      key: `${prefix}${event.seq}`,
      version: 0,
      first: event.seq,
      last: event.seq,
      turn: this.turn,
      at: event.at ?? null,
    };
  }

  /** Notes which turn an event belongs to, and where one begins. */
  private enter(event: LogEvent): void {
    const known = typeof event.turn_index === 'number' ? event.turn_index : null;
    // A stream's messages do not say their turn: it is the one after the last that ended.
    const turn = known ?? (event.turn_index === null ? null : this.ended + 1);
    if (turn === null || turn === this.turn) return;
    this.turn = turn;
    this.blocks.push({ ...this.base(event, 'turn'), kind: 'turn', turn });
  }

  private message(event: LogEvent): void {
    const message = object(event.message);
    const method = string(message['method']);
    if (method === 'session/update') {
      const update = object(object(message['params'])['update']);
      this.update(event, string(update['sessionUpdate']), update);
      return;
    }
    this.enter(event);
    // The question itself comes as an event of the audit, with what became of it; the prompt's result as a turn's end.
    if (method === 'session/request_permission') return this.about(message);
    if (method === 'elicitation/create') return;
    if (!method && ('result' in message || 'error' in message)) return;
    this.raw(event, method || 'message', event.message);
  }

  private update(event: LogEvent, kind: string, update: Json): void {
    switch (kind) {
      case 'agent_message_chunk':
        this.enter(event);
        return this.text(event, 'text', contentText(update['content']));
      case 'agent_thought_chunk':
        this.enter(event);
        return this.text(event, 'thought', contentText(update['content']));
      case 'user_message_chunk':
        this.enter(event);
        return this.text(event, 'user', contentText(update['content']));
      case 'tool_call':
      case 'tool_call_update':
        this.enter(event);
        return this.tool(event, update);
      case 'plan':
        this.enter(event);
        return this.plan(event, update);
      case 'available_commands_update':
      case 'current_mode_update':
      case 'config_option_update':
      case 'session_info_update':
      case 'usage_update':
        return;
      default:
        this.enter(event);
        this.raw(event, kind || 'update', update);
    }
  }

  private text(event: LogEvent, kind: TextBlock['kind'], text: string): void {
    if (!text) return;
    let rest = text;
    let last = this.blocks.at(-1);
    while (rest) {
      const grows = last && isText(last) && last.kind === kind && last.turn === this.turn;
      if (grows && last && isText(last) && last.text.length < TEXT) {
        const cut = cutAt(rest, TEXT - last.text.length + 2_000);
        last.text += rest.slice(0, cut);
        last.last = event.seq;
        last.version += 1;
        rest = rest.slice(cut);
        // Ends at a line's end where there is one, so that the next block begins with a line.
        if (last.text.length >= TEXT) {
          const line = last.text.lastIndexOf('\n');
          if (line > TEXT / 2) {
            rest = last.text.slice(line + 1) + rest;
            last.text = last.text.slice(0, line + 1);
          }
          if (!rest) return;
        }
        if (!rest) return;
      }
      const next: TextBlock = {
        ...this.base(event, kind),
        kind,
        text: '',
        continues: Boolean(grows),
      };
      next.key += `-${this.blocks.length}-${rest.length}`;
      const cut = cutAt(rest, TEXT);
      next.text = rest.slice(0, cut);
      rest = rest.slice(cut);
      this.blocks.push(next);
      last = next;
    }
  }

  private tool(event: LogEvent, update: Json): void {
    const call = string(update['toolCallId']);
    let tool = this.tools.get(call);
    if (!tool) {
      tool = {
        ...this.base(event, 'tool'),
        kind: 'tool',
        call,
        title: '',
        sort: '',
        status: 'pending',
        subject: '',
        input: '',
        output: '',
        edits: [],
        places: [],
      };
      this.tools.set(call, tool);
      this.blocks.push(tool);
    }
    tool.last = event.seq;
    tool.version += 1;
    if (string(update['title'])) tool.title = string(update['title']).slice(0, 400);
    if (string(update['kind'])) tool.sort = string(update['kind']);
    if (string(update['status'])) tool.status = string(update['status']);
    if (update['rawInput'] !== undefined) this.input(tool, update['rawInput']);
    const edits = editsOfContent(update['content']);
    if (edits.length) tool.edits = edits;
    const places = array(update['locations']).map((place) => string(object(place)['path']));
    if (places.length) tool.places = places.filter(Boolean).slice(0, 8);
    const content = array(update['content']).map(toolContent).filter(Boolean).join('\n');
    if (content) tool.output = clip(content, TOOL);
    else if (update['rawOutput'] !== undefined && !tool.output) tool.output = clip(pretty(update['rawOutput']), TOOL);
  }

  private input(tool: ToolBlock, value: unknown): void {
    const edits = editsOfInput(value);
    if (edits.length && !tool.edits.length) tool.edits = edits;
    // What is shown as a diff needs no second form.
    tool.input = edits.length ? '' : clip(pretty(value), TOOL);
    tool.subject = detailOf({ rawInput: value }).subject || tool.subject;
  }

  private plan(event: LogEvent, update: Json): void {
    const entries = array(update['entries'])
      .slice(0, 100)
      .map((entry) => ({
        content: string(object(entry)['content']).slice(0, 500),
        status: string(object(entry)['status']),
      }));
    // A plan is always told whole: the turn's former one is out of date.
    const former = this.blocks.findLast((block) => block.kind === 'plan' && block.turn === this.turn);
    if (former?.kind === 'plan') {
      former.entries = entries;
      former.last = event.seq;
      former.version += 1;
      return;
    }
    this.blocks.push({ ...this.base(event, 'plan'), kind: 'plan', entries });
  }

  /** Notes what a question is about. It may come before or after the question itself. */
  private about(message: Json): void {
    const call = object(object(message['params'])['toolCall']);
    const told = detailOf(call);
    const tool = this.tools.get(string(call['toolCallId']));
    // Some agents describe the call before they ask, and name only its number in the question.
    const runs = tool?.sort === 'execute';
    const input = tool?.input ?? '';
    const known: Detail = { command: runs ? input : '', subject: tool?.subject ?? '', edits: tool?.edits ?? [], input: runs ? '' : input };
    const detail = tells(told) ? { ...told, edits: told.edits.length ? told.edits : known.edits } : known;
    if (!tells(detail)) return;
    const request = typeof message['id'] === 'string' ? message['id'] : JSON.stringify(message['id'] ?? null);
    const ask = this.asks.get(request) ?? this.asks.get(JSON.stringify(request));
    if (ask?.status !== 'asked') {
      this.details.set(request, detail);
      return;
    }
    ask.detail = detail;
    ask.version += 1;
  }

  private permission(event: LogEvent): void {
    this.enter(event);
    const request = string(event['request_id']);
    const known = this.asks.get(request);
    const status = string(event['status']);
    // An agent that was started again counts its questions from the beginning.
    if (known && status !== 'asked') {
      known.status = status;
      known.answer = string(event['option']) || null;
      known.by = string(event['by']) || null;
      known.last = event.seq;
      known.version += 1;
      return;
    }
    const options = array(event['options']).map((value): Option => {
      const option = object(value);
      return { option: string(option['option']), name: string(option['name']), kind: string(option['kind']) };
    });
    const ask: AskBlock = {
      ...this.base(event, 'ask'),
      kind: 'ask',
      request,
      title: string(event['title']),
      options,
      form: event['form'] ? object(event['form']) : null,
      detail: this.details.get(request) ?? this.details.get(unquoted(request)) ?? null,
      status,
      answer: string(event['option']) || null,
      by: string(event['by']) || null,
    };
    this.details.delete(request);
    this.details.delete(unquoted(request));
    this.asks.set(request, ask);
    this.blocks.push(ask);
  }

  /** The questions that wait for an answer, oldest first. */
  get questions(): AskBlock[] {
    return [...this.asks.values()].filter((ask) => ask.status === 'asked');
  }

  private end(event: LogEvent): void {
    this.enter(event);
    const usage = object(event['usage']);
    const tokens = ['input_tokens', 'output_tokens', 'cached_read_tokens', 'cached_write_tokens']
      .map((name) => number(usage[name]) ?? 0)
      .reduce((a, b) => a + b, 0);
    this.blocks.push({
      ...this.base(event, 'end'),
      kind: 'end',
      state: string(event['state']),
      reason: string(event['stop_reason']) || null,
      error: string(event['error']) || null,
      tokens: tokens || null,
      cost: number(usage['cost_usd']),
      duration: number(event['duration_ms']),
    });
    if (typeof event.turn_index === 'number') this.ended = Math.max(this.ended, event.turn_index);
    this.turn = null;
    this.details.clear();
    // What has not been answered by now never will be.
    for (const ask of this.asks.values()) {
      if (ask.status === 'asked' && ask.turn === event.turn_index) {
        ask.status = 'over';
        ask.version += 1;
      }
    }
  }

  private note(event: LogEvent): void {
    const words: Record<string, [string, NoteBlock['tone']]> = {
      create: [`Session made${string(event['agent']) ? ` with ${string(event['agent'])}` : ''}`, 'plain'],
      cancel: ['Cancelled', 'warn'],
      setting: [changed(event), 'plain'],
      resume: resumed(event),
      stalled: [string(event['message']) || 'No output for a while', 'warn'],
      notice: [string(event['message']), 'warn'],
      close: ['Closed', 'plain'],
      sweep_close: ['Closed: idle for too long', 'plain'],
    };
    const [text, tone] = words[event.event] ?? [event.event, 'plain'];
    this.blocks.push({ ...this.base(event, 'note'), kind: 'note', word: event.event, text, tone });
  }

  private raw(event: LogEvent, title: string, value: unknown): void {
    this.blocks.push({ ...this.base(event, 'raw'), kind: 'raw', title, text: clip(pretty(value), RAW) });
  }
}

/** A request's number without the quotes that JSON puts around a text. */
const unquoted = (request: string) => request.replace(/^"(.*)"$/, '$1');

function changed(event: LogEvent): string {
  if (string(event['mode'])) return `Mode: ${string(event['mode'])}`;
  return `${string(event['option'])}: ${String(event['value'])}`;
}

function resumed(event: LogEvent): [string, NoteBlock['tone']] {
  if (event['ok'] === true) return ['Conversation resumed', 'plain'];
  if (event['fresh'] === true) return ['Started afresh: the agent had said nothing yet', 'plain'];
  return [`Not resumed: ${string(event['error'])}`, 'bad'];
}

const isText = (block: Block): block is TextBlock =>
  block.kind === 'text' || block.kind === 'thought' || block.kind === 'user';

/** The words of a content block, or what stands for them. */
export function contentText(value: unknown): string {
  const content = object(value);
  if (typeof content['text'] === 'string') return content['text'];
  switch (content['type']) {
    case 'image':
      return '[an image]';
    case 'audio':
      return '[a sound]';
    case 'resource_link':
      return string(content['uri']);
    case 'resource':
      return string(object(content['resource'])['text']) || string(object(content['resource'])['uri']);
    default:
      return '';
  }
}

function toolContent(value: unknown): string {
  const item = object(value);
  switch (item['type']) {
    case 'content':
      return contentText(item['content']);
    case 'diff':
      return '';
    case 'terminal':
      return `[terminal ${string(item['terminalId'])}]`;
    default:
      return contentText(value);
  }
}

function absorb(tool: ToolBlock, later: ToolBlock): void {
  tool.title = later.title || tool.title;
  tool.sort = later.sort || tool.sort;
  tool.status = later.status;
  tool.input = later.input || tool.input;
  tool.output = later.output || tool.output;
  tool.subject = later.subject || tool.subject;
  if (later.edits.length) tool.edits = later.edits;
  if (later.places.length) tool.places = later.places;
  tool.last = later.last;
  tool.version += 1;
}
