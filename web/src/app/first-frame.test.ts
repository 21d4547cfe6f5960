import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { afterPaint, markLooks, showFailure, writeHead } from './first-frame';
import { pageAt } from './page-loaders';
import { PAGES } from './pages';

beforeEach(() => {
  document.body.innerHTML =
    '<div id="root"><div class="boot"><div class="boot-page"></div></div></div>';
});

afterEach(() => {
  localStorage.clear();
  for (const name of document.documentElement.getAttributeNames()) {
    if (name.startsWith('data-')) document.documentElement.removeAttribute(name);
  }
  vi.unstubAllGlobals();
});

function marks(): string[] {
  const { attributes } = document.documentElement;
  return [...attributes]
    .filter(({ name }) => name.startsWith('data-'))
    .map(({ name, value }) => `${name}=${value}`);
}

describe('the frame before the page', () => {
  it('looks as the reader chose', () => {
    localStorage.setItem('colibri.theme', 'light');
    localStorage.setItem('colibri.runtime', 'closed');
    markLooks();
    expect(marks()).toEqual(['data-theme=light', 'data-runtime=closed']);
  });

  it('follows the system where nothing was chosen, or something unknown', () => {
    localStorage.setItem('colibri.theme', 'purple');
    markLooks();
    expect(marks()).toEqual([]);
  });

  it.each([
    ['en', '/brain', 'Brain', 'Every cell is one expert'],
    ['it', '/settings', 'Impostazioni', 'Ciò che si imposta'],
    ['en', '/', 'What shall we think about?', 'Everything you say'],
  ])('has in %s at %s the words the page begins with', (locale, path, title, intro) => {
    localStorage.setItem('colibri-locale', locale);
    writeHead(path);
    expect(document.querySelector('.boot-page h1')).toHaveTextContent(title);
    expect(document.querySelector('.boot-page p')).toHaveTextContent(intro);
  });

  it.each(['/c/some', '/nowhere'])('says nothing at %s, where the page will not', (path) => {
    writeHead(path);
    expect(document.querySelector('.boot-page')).toBeEmptyDOMElement();
  });

  it('is painted before anything else runs', async () => {
    const order: string[] = [];
    requestAnimationFrame(() => order.push('frame'));
    await new Promise<void>((resolve) => {
      afterPaint(() => {
        order.push('page');
        resolve();
      });
      order.push('asked');
    });
    expect(order).toEqual(['asked', 'frame', 'page']);
  });

  it('is not waited for where nothing is painted', () => {
    vi.spyOn(document, 'hidden', 'get').mockReturnValue(true);
    const run = vi.fn();
    afterPaint(run);
    expect(run).toHaveBeenCalledOnce();
  });

  it.each([
    ['en', 'The dashboard could not be loaded. Reload the page.'],
    ['it', 'Impossibile caricare la dashboard. Ricaricare la pagina.'],
  ])('says in %s when the page does not arrive', (locale, text) => {
    localStorage.setItem('colibri-locale', locale);
    showFailure();
    expect(document.querySelector('[role=alert]')).toHaveTextContent(text);
    expect(document.querySelector('.boot')).toBeNull();
  });
});

describe('the part of the build for an address', () => {
  it('is that of the page which is shown there', () => {
    for (const { id, paths } of PAGES) {
      for (const path of paths) expect(pageAt(path)).toBe(id);
    }
    expect(pageAt('/constructor')).toBeNull();
  });
});
