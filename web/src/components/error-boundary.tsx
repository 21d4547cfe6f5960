// Keeps a crash to the page it happened in.
import { Component, type ErrorInfo, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '@/components/button';
import { copyText } from '@/lib/clipboard';
import styles from './error-boundary.module.css';

interface BoundaryProps {
  children: ReactNode;
  /** What is shown instead of the notice. */
  fallback?: ReactNode;
  /** A change of it gives the children another try, e.g. the path of the page. */
  resetKey?: string;
}

interface BoundaryState {
  error: Error | null;
  where: string;
  resetKey: string | undefined;
}

export class ErrorBoundary extends Component<BoundaryProps, BoundaryState> {
  override state: BoundaryState = { error: null, where: '', resetKey: this.props.resetKey };

  static getDerivedStateFromError(error: unknown): Partial<BoundaryState> {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  static getDerivedStateFromProps(
    props: BoundaryProps,
    state: BoundaryState,
  ): Partial<BoundaryState> | null {
    if (props.resetKey === state.resetKey) return null;
    return { error: null, where: '', resetKey: props.resetKey };
  }

  override componentDidCatch(_error: unknown, info: ErrorInfo): void {
    this.setState({ where: info.componentStack ?? '' });
  }

  override render(): ReactNode {
    const { error, where } = this.state;
    if (error === null) return this.props.children;
    if (this.props.fallback !== undefined) return this.props.fallback;
    return (
      <Crash
        error={error}
        where={where}
        onRetry={() => this.setState({ error: null, where: '' })}
      />
    );
  }
}

interface CrashProps {
  error: Error;
  where: string;
  onRetry: () => void;
}

function Crash({ error, where, onRetry }: CrashProps) {
  const { t } = useTranslation();
  const details = `${error.name}: ${error.message}\n${error.stack ?? ''}\n${where}`;
  return (
    <div role="alert" className={styles.crash}>
      <h2>{t('error.title')}</h2>
      <p>{t('error.text')}</p>
      <code>{error.message}</code>
      <div className={styles.actions}>
        <Button variant="primary" onClick={onRetry}>
          {t('error.retry')}
        </Button>
        <Button onClick={() => void copyText(details)}>{t('error.copy')}</Button>
      </div>
    </div>
  );
}
