import { callText } from '../../api';
import { spoken } from '../../terminal/spoken';
import { useLoad } from '../../ui/load';

/** Interval of looking at the screen, in milliseconds. */
const LOOK_INTERVAL = 700;
/** Number of lines shown. On a phone, a line takes several. */
const LINES = 14;

/** What an agent on a terminal is writing: its record has a text only when the text is complete. */
export function Writing({ id, agent }: { id: string; agent: string }) {
  const place = `/admin/live/${encodeURIComponent(id)}/screen?format=text`;
  const { value } = useLoad(place, (abort) => callText(place, { signal: abort }), LOOK_INTERVAL);
  return (
    <div class="writing">
      <div class="tail" role="group" aria-label={`The screen of ${agent}`}>
        {spoken(value ?? '', LINES).map((line, at) => (
          <div key={at}>{line}</div>
        ))}
      </div>
    </div>
  );
}
