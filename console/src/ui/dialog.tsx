// Dialogs.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

import { Button } from './parts';
import { attempt } from './toast';

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
        <Button look="quiet" autofocus={asked.danger === true} onClick={close}>
          Leave it
        </Button>
        <Button
          look={asked.danger ? 'danger' : 'primary'}
          autofocus={!asked.danger}
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
