// Numbers for people.

function digits(value: number, places: number): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

export function number(value: number): string {
  const size = Math.abs(value);
  return digits(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

export function milliseconds(ms: number): string {
  return Math.abs(ms) >= 10_000 ? `${number(ms / 1000)} s` : `${number(ms)} ms`;
}

export function percent(share: number): string {
  const value = 100 * share;
  return `${digits(value, value !== 0 && Math.abs(value) < 10 ? 1 : 0)} %`;
}

export function times(ratio: number): string {
  return `${digits(ratio, ratio >= 10 ? 0 : ratio >= 2 ? 1 : 2)}\u00d7`;
}

export function range(low: number, high: number): string {
  const [from, to] = [number(low), number(high)];
  return from === to ? `${from} ms` : `${from}\u2013${to} ms`;
}
