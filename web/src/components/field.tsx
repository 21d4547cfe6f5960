// A labelled control with a hint, a warning, and a group of them.
import { useId, type ReactNode } from 'react';
import styles from './field.module.css';

interface FieldProps {
  label: string;
  hint?: string;
  warning?: string;
  /** Gets the ids that tie the control to its label and hint. */
  children: (ids: { id: string; 'aria-describedby': string }) => ReactNode;
}

export function Field({ label, hint, warning, children }: FieldProps) {
  const id = useId();
  const hintId = `${id}-hint`;
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      {children({ id, 'aria-describedby': hintId })}
      <div id={hintId} className={styles.hint}>
        {hint}
        {warning !== undefined && <p className={styles.warning}>{warning}</p>}
      </div>
    </div>
  );
}

export function FieldGroup({ title, children }: { title: string; children: ReactNode }) {
  const id = useId();
  return (
    <section className={styles.group} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}
