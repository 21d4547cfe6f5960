// The conversation of the address: its messages, and the composer below them.
import { useEffect } from 'react';
import { useNavigate, useParams } from 'react-router';
import { useTranslation } from 'react-i18next';
import { NEW, openConversation, useChat } from '../stores/chat-store';
import { ChatEmpty } from './chat-empty';
import styles from './chat-page.module.css';
import { Composer } from './composer';
import { FailureCard } from './failure-card';
import { MessageList } from './message-list';
import { TurnStatus } from './turn-status';

export default function ChatPage() {
  const { t } = useTranslation('chat');
  const { id = NEW } = useParams();
  const navigate = useNavigate();
  const isLoaded = useChat((state) => state.isLoaded);
  const isKnown = useChat((state) => id === NEW || state.conversations[id] !== undefined);
  const title = useChat((state) => state.conversations[id]?.title ?? '');
  const hasMessages = useChat((state) => (state.conversations[id]?.leaf ?? null) !== null);

  useEffect(() => {
    if (id !== NEW && isLoaded) void openConversation(id);
  }, [id, isLoaded]);
  useEffect(() => {
    document.title = title === '' ? 'coli' : `${title} · coli`;
  }, [title]);

  if (!isLoaded) return null;
  return (
    <div className={styles.page}>
      <h1 className="visually-hidden">{title || t('newConversation')}</h1>
      {!isKnown && (
        <p role="alert" className={styles.gone}>
          {t('gone')}
        </p>
      )}
      {isKnown &&
        (hasMessages ? <MessageList key={id} conversation={id} /> : <ChatEmpty id={id} />)}
      <div className={styles.foot}>
        <div className={styles.column}>
          <FailureCard id={id} />
          <TurnStatus id={id} />
          <Composer
            key={id}
            id={isKnown ? id : NEW}
            onSent={(sent) => {
              if (sent !== id) void navigate(`/c/${sent}`);
            }}
          />
        </div>
      </div>
    </div>
  );
}
