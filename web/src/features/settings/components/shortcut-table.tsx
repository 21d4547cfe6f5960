import { useTranslation } from 'react-i18next';
import { FieldGroup } from '@/components/field';
import styles from './shortcut-table.module.css';

const MOD = /mac|iphone|ipad/i.test(navigator.userAgent) ? '⌘' : 'Ctrl';

const KEYS = {
  send: ['Enter'],
  newline: ['Shift', 'Enter'],
  stop: ['Esc'],
  newChat: [MOD, 'Shift', 'O'],
  search: [MOD, 'K'],
  sidebar: [MOD, 'B'],
  copyAnswer: [MOD, 'Shift', 'C'],
  copyCode: [MOD, 'Shift', ';'],
  pages: ['Alt', '1…5'],
  sheet: ['?'],
} as const;

export function ShortcutTable() {
  const { t } = useTranslation('settings');
  return (
    <FieldGroup title={t('shortcuts.title')}>
      <ShortcutList />
    </FieldGroup>
  );
}

/** What the keys do. */
export function ShortcutList() {
  const { t } = useTranslation('settings');
  return (
    <dl className={styles.list}>
      {Object.entries(KEYS).map(([name, keys]) => (
        <div key={name}>
          <dt>{t(`shortcuts.${name as keyof typeof KEYS}`)}</dt>
          <dd>
            {keys.map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}
