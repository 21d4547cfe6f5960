// What happens before there is a page: the frame of index.html is made to look as the reader chose,
// given the page's first words, and painted. Imports nothing large, since all of it is waited for.
import { detectLocale, type Locale } from '@/lib/i18n/locale';
import en from '@/lib/i18n/locales/en/frame.json';
import it from '@/lib/i18n/locales/it/frame.json';
import { readStored } from '@/lib/storage';
import { LOCALE_KEY, RUNTIME_KEY, SIDEBAR_KEY, THEME_KEY } from '@/lib/stored-looks';
import { pageAt } from './page-loaders';

const TEXTS: Readonly<Record<Locale, typeof en>> = { en, it };

/** Mark the document with what the reader chose of its looks. */
export function markLooks(): void {
  const { dataset } = document.documentElement;
  const theme = readStored(THEME_KEY);
  if (theme === 'dark' || theme === 'light') dataset.theme = theme;
  if (readStored(SIDEBAR_KEY) === 'closed') dataset.sidebar = 'closed';
  if (readStored(RUNTIME_KEY) === 'closed') dataset.runtime = 'closed';
}

/** Call a function once the frame has been painted; at once where nothing is painted. */
export function afterPaint(run: () => void): void {
  if (document.hidden) run();
  else requestAnimationFrame(() => setTimeout(run));
}

/** Write in the frame what the page of the address begins with, where it will have it. */
export function writeHead(pathname: string): void {
  const page = pageAt(pathname);
  const place = document.querySelector<HTMLElement>('.boot-page');
  if (page === null || place === null || pathname.startsWith('/c/')) return;
  const head = document.createElement('div');
  const title = document.createElement('h1');
  const intro = document.createElement('p');
  title.textContent = texts()[page].title;
  intro.textContent = texts()[page].intro;
  head.append(title, intro);
  place.dataset.page = page;
  place.replaceChildren(head);
}

/** Tell, in place of the frame, that the page did not arrive. */
export function showFailure(): void {
  const note = document.createElement('p');
  note.className = 'boot-failed';
  note.setAttribute('role', 'alert');
  note.textContent = texts().failed;
  document.getElementById('root')?.replaceChildren(note);
}

function texts(): typeof en {
  return TEXTS[detectLocale(readStored(LOCALE_KEY), navigator.languages)];
}
