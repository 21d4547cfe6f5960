import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { Field, FieldGroup } from '@/components/field';
import { useConnection } from '@/lib/connection/connection-store';
import { baseProblem, isKeyExposed } from '@/lib/endpoint';
import styles from './connection-group.module.css';

export function ConnectionGroup() {
  const { t } = useTranslation(['settings', 'common']);
  const { base, apiKey, model, models, status, setBase, setApiKey, selectModel, probe } =
    useConnection();
  const problem = baseProblem(base);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (problem === null) void probe();
      }}
    >
      <FieldGroup title={t('connection.title')}>
        <Field
          label={t('connection.base')}
          hint={t('connection.baseHint')}
          {...(problem === null ? {} : { warning: t(`connection.problem.${problem}`) })}
        >
          {(ids) => (
            <input
              {...ids}
              type="url"
              value={base}
              autoComplete="off"
              spellCheck={false}
              aria-invalid={problem !== null}
              onChange={(event) => setBase(event.target.value)}
            />
          )}
        </Field>
        <Field
          label={t('connection.key')}
          hint={t('connection.keyHint')}
          {...(apiKey !== '' && isKeyExposed(base) ? { warning: t('connection.exposed') } : {})}
        >
          {(ids) => (
            <input
              {...ids}
              type="password"
              value={apiKey}
              autoComplete="off"
              onChange={(event) => setApiKey(event.target.value.trim())}
            />
          )}
        </Field>
        {models.length > 0 && (
          <Field label={t('connection.model')}>
            {(ids) => (
              <select {...ids} value={model} onChange={(event) => selectModel(event.target.value)}>
                {models.map(({ id }) => (
                  <option key={id}>{id}</option>
                ))}
              </select>
            )}
          </Field>
        )}
        <div className={styles.foot}>
          <Button variant="primary" type="submit" disabled={problem !== null}>
            {t('connection.probe')}
          </Button>
          <span role="status" className={styles.status} data-status={status}>
            {t(`common:connection.${status}`)}
          </span>
        </div>
      </FieldGroup>
    </form>
  );
}
