// Sliders and switches with their labels.

import { h } from "./dom";

export interface Slider<T> {
  element: HTMLElement;
  value: () => T;
  set: (value: T) => void;
}

/** A slider over a list of values. */
export function slider<T>(
  id: string,
  label: string,
  values: T[],
  text: (value: T) => string,
  changed: () => void,
): Slider<T> {
  const shown = h("output", { for: id });
  const input = h("input", {
    type: "range",
    id,
    min: 0,
    max: values.length - 1,
    step: 1,
    value: 0,
    input: () => {
      say();
      changed();
    },
  });
  const value = () => values[Number(input.value)]!;
  const say = () => {
    shown.textContent = text(value());
    input.setAttribute("aria-valuetext", text(value()));
  };
  const set = (wanted: T) => {
    input.value = String(Math.max(0, values.indexOf(wanted)));
    say();
  };
  say();
  return { element: h("div", { class: "slider" }, h("label", { for: id }, label), shown, input), value, set };
}

/** `usable` is false where it could change nothing: a loop that copies nothing to a device. */
export function toggle(id: string, label: string, usable: boolean, changed: () => void): Slider<boolean> {
  const input = h("input", { type: "checkbox", id, role: "switch", disabled: !usable, change: changed });
  return {
    element: h("label", { class: "switch", for: id }, input, label),
    value: () => input.checked,
    set: (value) => {
      input.checked = value;
    },
  };
}
