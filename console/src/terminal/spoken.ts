/** A line of nothing but frames and rules. */
const FRAME = /^[\s\u2500-\u259f]*$/;

/** The lines of a screen that say something, the last ones of them. */
export function spoken(screen: string, most: number): string[] {
  return screen
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => !FRAME.test(line))
    .slice(-most);
}
