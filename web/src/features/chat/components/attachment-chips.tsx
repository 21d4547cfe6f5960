import { FileText, X } from 'lucide-react';
import { useTranslation } from 'react-i18next';
import { IconButton } from '@/components/button';
import { formatCount } from '@/lib/format';
import type { Attachment } from '../model/conversation';
import { setAttachments, useAttachments } from '../stores/drafts';
import styles from './attachment-chips.module.css';

export function AttachmentChips({ id }: { id: string }) {
  const { t } = useTranslation('chat');
  const attachments = useAttachments(id);
  if (attachments.length === 0) return null;
  return (
    <ul className={styles.chips}>
      {attachments.map((attachment, index) => (
        <li key={`${index}-${attachment.name}`}>
          <Chip attachment={attachment}>
            <IconButton
              size="small"
              label={t('attach.remove', { name: attachment.name })}
              icon={<X size={14} />}
              onClick={() =>
                setAttachments(
                  id,
                  attachments.filter((_other, place) => place !== index),
                )
              }
            />
          </Chip>
        </li>
      ))}
    </ul>
  );
}

interface ChipProps {
  attachment: Attachment;
  children?: React.ReactNode;
}

export function Chip({ attachment, children }: ChipProps) {
  const { t, i18n } = useTranslation('chat');
  return (
    <span className={styles.chip}>
      <FileText size={15} />
      <span className={styles.name}>{attachment.name}</span>
      <span className={styles.size}>
        {t('attach.characters', {
          count: attachment.text.length,
          shown: formatCount(attachment.text.length, i18n.language),
        })}
      </span>
      {children}
    </span>
  );
}
