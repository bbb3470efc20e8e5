// Apart from xterm.js, which needs a page.

/** Whether text is what a terminal answers by itself, or a report of focus or mouse, and not something typed. */
export function isReport(data: string): boolean {
  return /^\x1b(?:\[[?>=]?[\d;:]*(?:\$y|[cRnt])|\[[IO]$|\[<[\d;]+[Mm]|\[M[^~]|\]\d|P[01]?[$+>!])/.test(data);
}
