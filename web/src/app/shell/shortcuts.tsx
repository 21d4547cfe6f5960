// Keys that work on every page.
import { useEffect } from 'react';
import { useTranslation } from 'react-i18next';
import { useNavigate } from 'react-router';
import { Dialog } from '@/components/dialog';
import { ShortcutList } from '@/features/settings/components/shortcut-table';
import { SEARCH_FIELD_ID } from '@/features/chat/components/conversation-list';
import { copyLast } from '@/features/chat/stores/copy-last';
import { stopTurn } from '@/features/chat/stores/turn-runner';
import { PAGES } from '../pages';
import { useShell } from './shell-store';

/** What a key press means, as a name; "" if nothing. */
export function shortcutOf(event: KeyboardEvent): string {
  const key = event.key.toLowerCase();
  if (event.altKey && /^[1-9]$/.test(event.key)) return `page-${event.key}`;
  if (event.ctrlKey || event.metaKey) {
    if (event.shiftKey && key === 'o') return 'new';
    if (event.shiftKey && key === 'c') return 'copy-answer';
    if (event.shiftKey && (key === ';' || key === ':')) return 'copy-code';
    if (key === 'k') return 'search';
    if (key === 'b') return 'sidebar';
    return key === '/' ? 'sheet' : '';
  }
  const isTyping =
    event.target instanceof HTMLElement && event.target.matches('input, textarea, select');
  return event.key === '?' && !isTyping ? 'sheet' : '';
}

export function Shortcuts() {
  const { t } = useTranslation('settings');
  const navigate = useNavigate();
  const isSheetOpen = useShell((state) => state.isSheetOpen);
  const setSheetOpen = useShell((state) => state.setSheetOpen);
  useEffect(() => {
    const current = (): string | undefined => /^\/c\/([^/]+)/.exec(window.location.pathname)?.[1];
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) {
        const id = current();
        if (id !== undefined) stopTurn(id);
        return;
      }
      const shortcut = shortcutOf(event);
      if (shortcut === '') return;
      event.preventDefault();
      const { toggleSidebar } = useShell.getState();
      if (shortcut === 'new') void navigate('/');
      else if (shortcut === 'sidebar') toggleSidebar();
      else if (shortcut === 'sheet') setSheetOpen(!useShell.getState().isSheetOpen);
      else if (shortcut === 'search') focusSearch();
      else if (shortcut.startsWith('copy-')) {
        void copyLast(current(), shortcut === 'copy-code' ? 'code' : 'answer');
      } else {
        const page = PAGES[Number(shortcut.slice('page-'.length)) - 1];
        if (page !== undefined) void navigate(page.paths[0]);
      }
    };
    window.addEventListener('keydown', onKeyDown);
    return () => window.removeEventListener('keydown', onKeyDown);
  }, [navigate, setSheetOpen]);
  return (
    <Dialog isOpen={isSheetOpen} title={t('shortcuts.title')} onClose={() => setSheetOpen(false)}>
      <ShortcutList />
    </Dialog>
  );
}

function focusSearch(): void {
  const { isSidebarOpen, toggleSidebar } = useShell.getState();
  if (!isSidebarOpen) toggleSidebar();
  requestAnimationFrame(() => document.getElementById(SEARCH_FIELD_ID)?.focus());
}
