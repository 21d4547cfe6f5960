/** What a colour token (`--tier-ram`) is inside an element at the moment, as `rgb(…)`; for canvases. */
export function tokenColor(name: string, parent: Element = document.body): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  parent.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}
