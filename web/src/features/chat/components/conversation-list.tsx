// All conversations of this browser: search, groups by age, and what can be done with each.
import { Search, X } from 'lucide-react';
import { useMemo, useState } from 'react';
import { useTranslation } from 'react-i18next';
import { useMatch } from 'react-router';
import { IconButton } from '@/components/button';
import { useNow } from '@/lib/use-now';
import { useConversationSearch } from '../hooks/use-conversation-search';
import { groupByAge } from '../model/conversation-groups';
import { useChat } from '../stores/chat-store';
import { ConversationItem } from './conversation-item';
import styles from './conversation-list.module.css';

export const SEARCH_FIELD_ID = 'conversation-search';

export function ConversationList({ onOpen }: { onOpen?: () => void }) {
  const { t } = useTranslation('chat');
  const id = useMatch('/c/:id')?.params.id;
  const [words, setWords] = useState('');
  const conversations = useChat((state) => state.conversations);
  const isPersistent = useChat((state) => state.isPersistent);
  const now = useNow(60_000);
  const matching = useConversationSearch(words);
  const groups = useMemo(() => {
    const listed = Object.values(conversations).filter(
      (conversation) => matching === null || matching.has(conversation.id),
    );
    return groupByAge(listed, now);
  }, [conversations, matching, now]);

  return (
    <section className={styles.section} aria-label={t('list.label')}>
      <div className={styles.search}>
        <Search size={15} aria-hidden="true" />
        <input
          id={SEARCH_FIELD_ID}
          type="search"
          value={words}
          placeholder={t('list.search')}
          aria-label={t('list.search')}
          onChange={(event) => setWords(event.target.value)}
        />
        {words !== '' && (
          <IconButton
            size="small"
            label={t('list.clearSearch')}
            icon={<X size={14} />}
            onClick={() => setWords('')}
          />
        )}
      </div>
      <div className={styles.scroll}>
        {groups.map((group) => (
          <div key={group.name}>
            <h3 className={styles.group}>{t(`list.${group.name}`)}</h3>
            <ul>
              {group.conversations.map((conversation) => (
                <ConversationItem
                  key={conversation.id}
                  conversation={conversation}
                  isCurrent={conversation.id === id}
                  onOpen={onOpen}
                />
              ))}
            </ul>
          </div>
        ))}
        {groups.length === 0 && (
          <p className={styles.none}>{t(words === '' ? 'list.none' : 'list.noMatch')}</p>
        )}
        {!isPersistent && <p className={styles.none}>{t('list.notPersistent')}</p>}
      </div>
    </section>
  );
}
