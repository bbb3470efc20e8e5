import { useRef, useState } from 'preact/hooks';

import { Icon } from '../../ui/icons';

/** Where a prompt is written. It stays until Hob has taken it. */
export function Composer({ busy, onAsk }: { busy: boolean; onAsk: (prompt: string) => Promise<boolean> }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState('');
  const [sending, setSending] = useState(false);
  const grow = () => {
    const element = field.current!;
    element.style.height = 'auto';
    element.style.height = `${Math.min(element.scrollHeight, 260)}px`;
  };
  const ask = async () => {
    const prompt = text.trim();
    if (!prompt || sending) return;
    setSending(true);
    if (await onAsk(prompt)) {
      setText('');
      requestAnimationFrame(grow);
    }
    setSending(false);
    field.current?.focus();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void ask();
      }}
    >
      <textarea
        ref={field}
        rows={1}
        value={text}
        aria-label="Ask the agent"
        placeholder={busy ? 'Queue a prompt; it runs after this turn' : 'Ask the agent'}
        onInput={(event) => {
          setText(event.currentTarget.value);
          grow();
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            void ask();
          }
        }}
      />
      <button type="submit" class="send" aria-label="Ask" disabled={!text.trim() || sending}>
        <Icon name="send" />
      </button>
    </form>
  );
}
