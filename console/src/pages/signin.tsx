// Signing in. The token is in the form's field and nowhere else, and goes once it was sent.
import { useEffect, useRef, useState } from 'preact/hooks';

import { ApiError, call, fresh, inWords, standing } from '../api';
import { Logo } from '../ui/icons';

export function SignIn({ again, onDone }: { again: boolean; onDone: () => Promise<void> }) {
  const field = useRef<HTMLInputElement>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (!again) document.title = 'Sign in · Hob';
    field.current?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    const input = field.current!;
    const token = input.value.trim();
    if (!token) {
      input.focus();
      return;
    }
    setBusy(true);
    setProblem(null);
    try {
      await call('/admin/login', { method: 'POST', body: { token }, signingIn: true });
      input.value = '';
      await onDone();
      standing.value = 'signed-in';
      fresh.value += 1;
    } catch (error) {
      setProblem(words(error));
      setBusy(false);
      input.select();
    }
  };
  return (
    <div class={again ? 'signin over' : 'signin'} role={again ? 'dialog' : 'main'} aria-modal={again ? 'true' : undefined} aria-label="Sign in">
      <div class="signin-card">
        <div class="signin-hearth">
          <Logo size={64} />
        </div>
        <h1>{again ? 'Sign-in expired' : 'Hob'}</h1>
        <p class="lead">
          {again ? 'Sign in again to continue where you were.' : 'Your agents, their sessions, and what they remember.'}
        </p>
        <form onSubmit={submit} autocomplete="off">
          <label for="token">Admin token</label>
          <input
            id="token"
            ref={field}
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
            aria-invalid={problem ? 'true' : undefined}
            aria-describedby={problem ? 'token-problem' : 'token-help'}
          />
          {problem ? (
            <p id="token-problem" class="field-problem" role="alert">
              {problem}
            </p>
          ) : null}
          <button type="submit" class="button primary large" disabled={busy}>
            {busy ? 'Signing in…' : 'Sign in'}
          </button>
        </form>
        <p id="token-help" class="hint">
          It is in <code>~/.hob/admin.token</code>, or in <code>$HOB_ADMIN_TOKEN</code> where you set it.
        </p>
      </div>
    </div>
  );
}

function words(error: unknown): string {
  if (error instanceof ApiError && error.status === 401) return 'That is not the admin token.';
  if (error instanceof ApiError && error.status === 429) {
    return `Too many wrong tokens. Try again in ${error.retryAfter ?? 60} seconds.`;
  }
  return inWords(error);
}
