// Elements from values. Text only ever becomes text: nothing here takes HTML.

type Child = Node | string | null;
type Props = Record<string, string | number | boolean | null | ((event: Event) => void)>;

/** An element. Props that are functions listen for the event of their name. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, props, children);
  return element;
}

export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, props, children);
  return element;
}

function fill(element: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
}

/** A titled part of the page. */
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  const heading = h("h2", { id: `${id}-title` }, title);
  return h("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
}

/** A bar from `start` to `end`, as shares of its cell. */
export function bar(start: number, end: number, className: string): HTMLElement {
  const element = h("span", { class: `bar ${className}` });
  element.style.left = `${100 * Math.max(0, start)}%`;
  element.style.width = `${100 * Math.max(0, Math.min(1, end) - Math.max(0, start))}%`;
  return element;
}

export function button(label: string, title: string, click: () => void): HTMLButtonElement {
  return h("button", { type: "button", title, "aria-label": title, click }, label);
}
