// What is known of the chosen expert.
import { useTranslation } from 'react-i18next';
import { Link } from 'react-router';
import { keyOf, topTopics, type Atlas, type AtlasExpert } from '@/lib/atlas/atlas';
import { formatDecimal, formatPercent } from '@/lib/format';
import { topicColor } from '../model/galaxy';
import styles from './expert-card.module.css';

const NUM_SHOWN = 3;

export function ExpertCard({ atlas, expert }: { atlas: Atlas; expert: AtlasExpert | undefined }) {
  const { t, i18n } = useTranslation('atlas');
  if (expert === undefined) {
    return (
      <section className={styles.card} aria-live="polite">
        <p>{t('card.none')}</p>
      </section>
    );
  }
  const { language } = i18n;
  return (
    <section className={styles.card} aria-live="polite">
      <h2>{t('card.title', { layer: expert.layer, expert: expert.expert })}</h2>
      <p>
        {expert.isSpecialist
          ? t('card.specialist', { topic: atlas.topics[expert.top] ?? '' })
          : t('card.generalist')}
        {' · '}
        {t('card.entropy', { bits: formatDecimal(expert.entropy, 2, language) })}
      </p>
      <ul>
        {topTopics(expert, atlas.topics, NUM_SHOWN).map(({ topic, index, share }) => (
          <li key={topic}>
            <span>{topic}</span>
            <span className="numeric">{formatPercent(share, language)}</span>
            <i style={{ width: `${100 * share}%`, background: topicColor(index) }} />
          </li>
        ))}
      </ul>
      <Link to={`/brain?expert=${keyOf(expert)}`} className={styles.link}>
        {t('card.brain')}
      </Link>
    </section>
  );
}
