// Colours of the page as numbers, for canvases.

export type Rgb = readonly [red: number, green: number, blue: number];

/** What a colour token (`--tier-ram`) is inside an element at the moment, as `rgb(…)`. */
export function tokenColor(name: string, parent: Element = document.body): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  return computedColor(probe, parent);
}

/** Any colour of CSS as red, green and blue from 0 to 255. */
export function rgbOf(color: string): Rgb {
  const probe = document.createElement('span');
  probe.style.color = color;
  return parseRgb(computedColor(probe, document.body));
}

/** A token's value on what is dark in both themes. */
export function darkTokenRgb(name: string): Rgb {
  const probe = document.createElement('span');
  probe.className = 'always-dark';
  probe.style.color = `var(${name})`;
  return parseRgb(computedColor(probe, document.body));
}

/** The numbers of `rgb(1, 2, 3)`. */
export function parseRgb(text: string): Rgb {
  const [red = 0, green = 0, blue = 0] = (text.match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

function computedColor(probe: HTMLElement, parent: Element): string {
  probe.hidden = true;
  parent.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
