// Light or dark: as the system says, until somebody chooses.

import { h } from "./dom";

const colours = new Map<string, string>();
let chosen = false;

/** Calls back when colours change. */
export function onTheme(redraw: () => void): void {
  document.addEventListener("theme", redraw);
}

function use(theme: string): void {
  document.documentElement.dataset.theme = theme;
  colours.clear();
  document.dispatchEvent(new Event("theme"));
}

export function themeButton(): HTMLElement {
  const other = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  const element = h("button", {
    type: "button",
    id: "theme",
    click: () => {
      chosen = true;
      use(other());
    },
  });
  onTheme(() => {
    element.textContent = other() === "dark" ? "Dark" : "Light";
    element.setAttribute("aria-label", `Change to ${other()} colours`);
  });
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    if (!chosen) use(systemDark.matches ? "dark" : "light");
  };
  systemDark.addEventListener("change", follow);
  follow();
  return element;
}

/** A colour of the style sheet, for canvases. */
export function colour(name: string): string {
  const known = colours.get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colours.set(name, value);
  return value;
}
