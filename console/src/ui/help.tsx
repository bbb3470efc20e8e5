import { helpOpen } from '../keys';
import { Dialog } from './dialog';
import { Keys } from './parts';

const GROUPS: [string, [string, string][]][] = [
  ['Go to', [['g n', 'Now'], ['g s', 'Sessions'], ['g m', 'Memory'], ['g a', 'Apps'], ['g h', 'Health']]],
  ['Find', [['/', 'Search on this page'], ['Ctrl K', 'Go anywhere, do anything'], ['j k', 'Next and previous in a list'], ['Enter', 'Open the selected item']]],
  ['In a session', [['e t', 'Events or terminal'], ['i', 'Ask something'], ['End', 'To the latest'], ['F6', 'Leave the terminal']]],
  ['Everywhere', [['?', 'This page'], ['Esc', 'Close, or leave a field']]],
];

export function Help() {
  return (
    <Dialog title="Keys" onClose={() => { helpOpen.value = false; }} wide>
      <div class="help">
        {GROUPS.map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([key, words]) => (
                <div key={key}>
                  <dt>
                    {key.startsWith('Ctrl') ? <kbd>{key}</kbd> : <Keys of={key} />}
                  </dt>
                  <dd>{words}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
