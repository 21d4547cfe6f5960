import { Activity, Menu as MenuIcon, Monitor, Moon, PanelLeftOpen, Sun } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { useConnection } from '@/lib/connection/connection-store';
import { THEMES, useTheme } from '@/lib/theme';
import { useShell } from './shell-store';
import styles from './top-bar.module.css';

interface TopBarProps {
  isRuntimeShown: boolean;
  /** Opens the navigation where it is a drawer. */
  onMenu: (() => void) | undefined;
  onRuntime: () => void;
}

const THEME_ICONS = { system: Monitor, dark: Moon, light: Sun } as const;

export function TopBar({ isRuntimeShown, onMenu, onRuntime }: TopBarProps) {
  const { t } = useTranslation();
  const { isSidebarOpen, toggleSidebar } = useShell();
  const { theme, setTheme } = useTheme();
  const ThemeIcon = THEME_ICONS[theme];
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? 'system';
  return (
    <header className={styles.bar}>
      {onMenu !== undefined && (
        <IconButton label={t('shell.openMenu')} icon={<MenuIcon size={18} />} onClick={onMenu} />
      )}
      {onMenu === undefined && !isSidebarOpen && (
        <IconButton
          label={t('shell.openMenu')}
          icon={<PanelLeftOpen size={17} />}
          onClick={toggleSidebar}
        />
      )}
      <ModelPicker />
      <span className={styles.space} />
      <IconButton
        label={`${t('theme.label')}: ${t(`theme.${theme}`)}`}
        icon={<ThemeIcon size={17} />}
        onClick={() => setTheme(next)}
      />
      <IconButton
        label={t(isRuntimeShown ? 'shell.closeRuntime' : 'shell.openRuntime')}
        aria-expanded={isRuntimeShown}
        isActive={isRuntimeShown}
        icon={<Activity size={17} />}
        onClick={onRuntime}
      />
    </header>
  );
}

function ModelPicker() {
  const { t } = useTranslation('settings');
  const { model, models, selectModel } = useConnection();
  if (models.length < 2) return <strong className={styles.model}>{model}</strong>;
  return (
    <select
      className={styles.picker}
      aria-label={t('connection.model')}
      value={model}
      onChange={(event) => selectModel(event.target.value)}
    >
      {models.map(({ id }) => (
        <option key={id}>{id}</option>
      ))}
    </select>
  );
}
