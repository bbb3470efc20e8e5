// The pieces every page is made of.
import type { ButtonHTMLAttributes, ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import { AwayError, inWords } from '../api';
import { now } from '../clock';
import { age, moment } from '../format';
import { Icon } from './icons';

export function Page(props: { title: string; lead?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Hob`;
  }, [props.title]);
  return (
    <div class="page">
      <header class="page-head">
        <div class="page-title">
          <h1>{props.title}</h1>
          {props.lead ? <p class="lead">{props.lead}</p> : null}
        </div>
        {props.actions ? <div class="actions">{props.actions}</div> : null}
      </header>
      {props.children}
    </div>
  );
}

export function Section(props: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section" aria-label={props.title}>
      <div class="section-head">
        <h2>{props.title}</h2>
        {props.aside ? <div class="section-aside">{props.aside}</div> : null}
      </div>
      {props.children}
    </section>
  );
}

type Press = ButtonHTMLAttributes<HTMLButtonElement> & {
  icon?: string;
  look?: 'plain' | 'primary' | 'danger' | 'quiet';
};

export function Button({ icon, look = 'plain', children, ...rest }: Press) {
  return (
    <button type="button" {...rest} class={`button ${look}${children ? '' : ' bare'}`}>
      {icon ? <Icon name={icon} size={16} /> : null}
      {children ? <span>{children}</span> : null}
    </button>
  );
}

const TONES: Record<string, string> = {
  running: 'ember',
  busy: 'ember',
  queued: 'gold',
  waiting: 'gold',
  asked: 'gold',
  idle: 'moss',
  ok: 'moss',
  finished: 'moss',
  completed: 'moss',
  warn: 'gold',
  cancelled: 'ash',
  closed: 'ash',
  pending: 'ash',
  in_progress: 'ember',
  fail: 'brick',
  failed: 'brick',
  died: 'brick',
  timed_out: 'brick',
  interrupted: 'brick',
  resume_failed: 'brick',
  not_installed: 'brick',
};

/** A state, as a word with a light of its colour. */
export function State({ word, label }: { word: string; label?: string }) {
  return (
    <span class={`state ${TONES[word] ?? 'ash'}${word === 'running' || word === 'busy' ? ' alive' : ''}`}>
      <span class="light" aria-hidden="true" />
      {label ?? word.replaceAll('_', ' ')}
    </span>
  );
}

export function Age({ at, before = '', after = '' }: { at: string | null | undefined; before?: string; after?: string }) {
  const text = age(at, now.value);
  if (!text) return null;
  const ago = text === 'now' ? 'just now' : `${before}${text}${after}`;
  return (
    <time dateTime={at ?? ''} title={at ?? ''}>
      {ago}
    </time>
  );
}

export function When({ at }: { at: string | null | undefined }) {
  return (
    <time dateTime={at ?? ''} title={at ?? ''}>
      {moment(at, now.value)}
    </time>
  );
}

export function Skeleton({ lines = 3, tall = false }: { lines?: number; tall?: boolean }) {
  return (
    <div class={tall ? 'skeleton tall' : 'skeleton'} role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, at) => (
        <span key={at} />
      ))}
    </div>
  );
}

export function Empty(props: { icon: string; title: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-mark">
        <Icon name={props.icon} size={26} />
      </span>
      <h3>{props.title}</h3>
      {props.children ? <div class="empty-words">{props.children}</div> : null}
      {props.action}
    </div>
  );
}

export function Problem({ error, again }: { error: unknown; again?: () => void }) {
  const gone = error instanceof AwayError;
  return (
    <div class="problem" role="alert">
      <Icon name="warn" size={20} />
      <div>
        <strong>{gone ? 'Hob does not answer' : 'The request failed'}</strong>
        <p>{gone ? 'This page continues by itself when it does.' : inWords(error)}</p>
      </div>
      {again ? <Button onClick={again}>Try again</Button> : null}
    </div>
  );
}

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <Button
      icon={done ? 'check' : 'copy'}
      onClick={async () => {
        try {
          await navigator.clipboard.writeText(text);
        } catch {
          copyTheOldWay(text);
        }
        setDone(true);
        window.setTimeout(() => setDone(false), 1600);
      }}
    >
      {done ? 'Copied' : label}
    </Button>
  );
}

/** Over plain http the clipboard's own interface is not there. */
function copyTheOldWay(text: string): void {
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'offstage';
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
}

export function Figure({ value, label, tone }: { value: ComponentChildren; label: string; tone?: string }) {
  return (
    <div class={`figure ${tone ?? ''}`}>
      <span class="figure-value">{value}</span>
      <span class="figure-label">{label}</span>
    </div>
  );
}

export function Keys({ of }: { of: string }) {
  return (
    <>
      {of.split(' ').map((key, at) => (
        <kbd key={at}>{key}</kbd>
      ))}
    </>
  );
}
