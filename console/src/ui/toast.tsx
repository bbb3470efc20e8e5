// Toasts: messages in a corner that disappear by themselves.
import { signal } from '@preact/signals';

import { inWords } from '../api';
import { Button } from './parts';
import { Icon } from './icons';

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
