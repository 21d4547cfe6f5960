// Shows the notes of lib/notices.ts.
import { useEffect } from 'react';
import { toast, Toaster } from 'sonner';
import { takeNotices, useNotices, type Notice } from '@/lib/notices';
import { useTheme } from '@/lib/theme';
import styles from './notices.module.css';

const WITH_ACTION_MS = 8000; // long enough to change one's mind

export default function Notices() {
  const theme = useTheme((state) => state.theme);
  const waiting = useNotices((state) => state.waiting);
  useEffect(() => {
    if (waiting.length > 0) takeNotices().forEach(show);
  }, [waiting]);
  return (
    <Toaster
      theme={theme}
      position="top-center"
      toastOptions={{ className: styles.notice ?? '' }}
    />
  );
}

function show({ kind, text, action }: Notice): void {
  const options =
    action === undefined
      ? {}
      : { duration: WITH_ACTION_MS, action: { label: action.label, onClick: action.run } };
  if (kind === 'plain') toast(text, options);
  else if (kind === 'done') toast.success(text, options);
  else toast.error(text, options);
}
