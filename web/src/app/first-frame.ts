// What happens before there is a page: the frame of index.html is made to look as the reader chose,
// and painted. Imports nothing large, since all of it is waited for.
import { readStored } from '@/lib/storage';
import { LOCALE_KEY, RUNTIME_KEY, SIDEBAR_KEY, THEME_KEY } from '@/lib/stored-looks';

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

const FAILED = {
  en: 'The dashboard could not be loaded. Reload the page.',
  it: 'Impossibile caricare la dashboard. Ricaricare la pagina.',
};

/** Tell, in place of the frame, that the page did not arrive. */
export function showFailure(): void {
  const language = (readStored(LOCALE_KEY) ?? navigator.language).slice(0, 2);
  const note = document.createElement('p');
  note.className = 'boot-failed';
  note.setAttribute('role', 'alert');
  note.textContent = language === 'it' ? FAILED.it : FAILED.en;
  document.getElementById('root')?.replaceChildren(note);
}
