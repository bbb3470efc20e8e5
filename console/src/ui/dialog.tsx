// Dialogs and passing messages.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

import { inWords } from '../api';
import { Button } from './parts';
import { Icon } from './icons';

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean; bare?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  // At once, so that what is typed next goes into it.
  useLayoutEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={`dialog${props.wide ? ' wide' : ''}${props.bare ? ' bare' : ''}`}
      aria-label={props.title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === element.current) props.onClose();
      }}
    >
      <div class="dialog-inner">
        {props.bare ? null : (
          <header>
            <h2>{props.title}</h2>
            <Button icon="close" look="quiet" aria-label="Close" onClick={props.onClose} />
          </header>
        )}
        {props.children}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  words: ComponentChildren;
  yes: string;
  danger?: boolean;
  act: () => Promise<unknown> | unknown;
}

const question = signal<Question | null>(null);

/** Asks before something that can't be taken back. */
export function confirm(asked: Question): void {
  question.value = asked;
}

export function Confirmation() {
  const asked = question.value;
  if (!asked) return null;
  const close = () => {
    question.value = null;
  };
  return (
    <Dialog title={asked.title} onClose={close}>
      <div class="dialog-words">{asked.words}</div>
      <div class="dialog-actions">
        <Button look="quiet" onClick={close}>
          Leave it
        </Button>
        <Button
          look={asked.danger ? 'danger' : 'primary'}
          autofocus
          onClick={() => {
            close();
            void attempt(asked.act);
          }}
        >
          {asked.yes}
        </Button>
      </div>
    </Dialog>
  );
}

/** Something that can be done about what a toast says. */
interface ToastAction {
  name: string;
  act: () => Promise<unknown>;
}

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  action?: ToastAction;
}

const toasts = signal<Toast[]>([]);
let next = 0;

export function say(text: string, bad = false): void {
  show({ text, bad }, bad ? 8000 : 3500);
}

/** Says something that can be acted on, and leaves time for it. */
export function offer(text: string, action: ToastAction): void {
  show({ text, bad: false, action }, 12000);
}

function show(toast: Omit<Toast, 'id'>, milliseconds: number): void {
  const id = (next += 1);
  toasts.value = [...toasts.value.slice(-3), { ...toast, id }];
  window.setTimeout(() => dismiss(id), milliseconds);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/** Does something and says so when it went wrong. */
export async function attempt(act: () => Promise<unknown> | unknown): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    say(inWords(error), true);
    return false;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.bad ? 'toast bad' : 'toast'}>
          <Icon name={toast.bad ? 'warn' : 'check'} size={16} />
          {toast.text}
          {toast.action ? <ActionButton toast={toast.id} action={toast.action} /> : null}
        </div>
      ))}
    </div>
  );
}

function ActionButton({ toast, action }: { toast: number; action: ToastAction }) {
  return (
    <Button
      look="quiet"
      onClick={() => {
        dismiss(toast);
        void attempt(action.act);
      }}
    >
      {action.name}
    </Button>
  );
}
