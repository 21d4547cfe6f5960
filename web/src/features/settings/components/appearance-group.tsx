import { useTranslation } from 'react-i18next';
import { Field, FieldGroup } from '@/components/field';
import { setLocale } from '@/lib/i18n/i18n';
import { LOCALES, type Locale } from '@/lib/i18n/locale';
import { THEMES, useTheme, type Theme } from '@/lib/theme';

export function AppearanceGroup() {
  const { t, i18n } = useTranslation(['settings', 'common']);
  const { theme, setTheme } = useTheme();
  return (
    <FieldGroup title={t('appearance.title')}>
      <Field label={t('common:theme.label')}>
        {(ids) => (
          <select
            {...ids}
            value={theme}
            onChange={(event) => setTheme(event.target.value as Theme)}
          >
            {THEMES.map((name) => (
              <option key={name} value={name}>
                {t(`common:theme.${name}`)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={t('common:language')}>
        {(ids) => (
          <select
            {...ids}
            value={i18n.language}
            onChange={(event) => setLocale(event.target.value as Locale)}
          >
            {Object.entries(LOCALES).map(([locale, name]) => (
              <option key={locale} value={locale}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
    </FieldGroup>
  );
}
