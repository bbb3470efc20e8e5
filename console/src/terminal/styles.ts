// Lets xterm.js style itself under a content policy without inline styles.
//
// It makes `style` elements and sets `style` attributes, some of them through the global document, so its option for
// another document is not enough. The elements get the answer's nonce; the attributes go through the object model,
// which the policy allows and which means the same.

let allowed = false;

export function allowStyles(): void {
  if (allowed) return;
  allowed = true;
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]')?.content ?? '';
  const createElement = document.createElement.bind(document) as typeof document.createElement;
  document.createElement = ((tag: string, options?: ElementCreationOptions) => {
    const element = createElement(tag, options);
    if (tag === 'style') element.nonce = nonce;
    return element;
  }) as typeof document.createElement;
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name: string, value: string) {
    if (name === 'style' && this instanceof HTMLElement) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
}
