// A question of an agent: what it is about, and the buttons that answer it.
import { useState } from 'preact/hooks';

import { Icon } from '../ui/icons';
import { Button } from '../ui/parts';
import type { AskBlock, Option } from './block';
import { heading, type Detail } from './detail';
import { Diff } from './diff';
import { contentOf, fieldsOf, Inputs } from './form';
import type { Json } from './json';

/** Answers a request with one of its options and, for a form, its fields. */
export type Answer = (request: string, option: string, content?: Json) => Promise<unknown>;

interface Props {
  block: AskBlock;
  /** A block changes in place: only its version tells that it is another. */
  version: number;
  answer: Answer;
  /** What was typed into forms, by request. */
  drafts: Map<string, Json>;
}

export function Ask({ block, answer, drafts }: Props) {
  const [sent, setSent] = useState(false);
  // Only the first rendering reads it: the inputs keep what is typed.
  const [draft] = useState(drafts.get(block.request));
  if (block.status !== 'asked') return <Answered block={block} />;
  const fields = block.form ? fieldsOf(block.form) : null;
  const send = async (option: string, content?: Json) => {
    setSent(true);
    await answer(block.request, option, content);
    setSent(false);
  };
  const sends = (option: Option) => fields !== null && option.kind === 'allow_once';
  return (
    <div class="ask" role="group" aria-label={fields ? `It asks: ${block.title}` : `May it? ${block.title}`}>
      <div class="ask-words">
        <Icon name="lock" />
        <div>
          <span class="ask-title">{fields ? 'The agent asks' : 'The agent asks whether it may'}</span>
          <strong>{heading(block.title, block.detail) || 'go on'}</strong>
        </div>
      </div>
      {block.detail ? <About detail={block.detail} title={block.title} /> : null}
      <form
        onInput={(event) => {
          if (fields) drafts.set(block.request, contentOf(fields, new FormData(event.currentTarget)));
        }}
        onSubmit={(event) => {
          event.preventDefault();
          const option = block.options.find(sends);
          if (option && fields) void send(option.option, contentOf(fields, new FormData(event.currentTarget)));
        }}
      >
        {fields ? <Inputs fields={fields} request={block.request} draft={draft} /> : null}
        <div class="ask-buttons">
          {block.options.map((option) => (
            <Button
              key={option.option}
              type={sends(option) ? 'submit' : 'button'}
              look={option.kind === 'allow_once' ? 'primary' : option.kind.startsWith('reject') ? 'danger' : 'plain'}
              disabled={sent}
              onClick={sends(option) ? undefined : () => send(option.option)}
            >
              {option.name || option.option}
            </Button>
          ))}
        </div>
      </form>
    </div>
  );
}

function Answered({ block }: { block: AskBlock }) {
  // What the policy answered by itself was never a question to anyone.
  const option = block.options.find((one) => one.option === block.answer);
  const words = block.by === 'policy' ? 'by the session’s rule' : block.by === 'timeout' ? 'nobody answered in time' : block.by === 'cancel' ? 'cancelled' : '';
  return (
    <div class="ask-over">
      <Icon name="lock" size={15} />
      <span>
        {block.title ? <strong>{block.title}</strong> : 'A permission'}: {option?.name ?? block.answer ?? 'not allowed'}
        {words ? <span class="soft"> · {words}</span> : null}
      </span>
    </div>
  );
}

function About({ detail, title }: { detail: Detail; title: string }) {
  const { command, subject, edits, input } = detail;
  return (
    <div class="ask-about">
      {command ? (
        <pre tabIndex={0} role="group" aria-label="Command">
          {command}
        </pre>
      ) : null}
      {edits.map((edit, at) => (
        <Diff key={at} edit={edit} />
      ))}
      {!command && !edits.length && subject && !title.includes(subject) ? <p class="places">{subject}</p> : null}
      {input ? (
        <pre tabIndex={0} role="group" aria-label="Input">
          {input}
        </pre>
      ) : null}
    </div>
  );
}
