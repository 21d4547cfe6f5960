// The measured atlas of the experts: which topics each one prefers, as a galaxy and as a table.
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { PageHead } from '@/components/page-head';
import type { Atlas } from '@/lib/atlas/atlas';
import { useAtlas } from '@/lib/atlas/use-atlas';
import { formatCount } from '@/lib/format';
import { joinClasses } from '@/lib/join-classes';
import { useHealth } from '@/lib/telemetry/hooks';
import { useLiveLooks } from '../hooks/use-live-looks';
import { noFilter } from '../model/galaxy';
import type { Coloring } from '../model/point-looks';
import { AtlasControls } from './atlas-controls';
import styles from './atlas-page.module.css';
import { AtlasTable } from './atlas-table';
import { ExpertCard } from './expert-card';
import Galaxy from './galaxy';

export default function AtlasPage() {
  const { t } = useTranslation('atlas');
  const state = useAtlas();
  const isFront = useHealth()?.upstream !== undefined;
  if (state.status === 'ready') return <Loaded atlas={state.atlas} />;
  // Those commands measure a model of ours, which a server behind does not have.
  const reason = state.status === 'missing' && isFront ? 'behind' : state.status;
  return (
    <div className={styles.bare}>
      <PageHead page="atlas" />
      <div className={styles.empty}>
        <p role="status">{t(`empty.${reason}`)}</p>
        {reason === 'missing' && (
          <pre>
            <code>{'coli atlas sweep --model MODEL\ncoli atlas analyze --model MODEL'}</code>
          </pre>
        )}
      </div>
    </div>
  );
}

function Loaded({ atlas }: { atlas: Atlas }) {
  const { t, i18n } = useTranslation('atlas');
  const [filter, setFilter] = useState(() => noFilter(atlas));
  const [coloring, setColoring] = useState<Coloring>('topic');
  const [selected, setSelected] = useState(-1);
  const { look, hasMap, onScene } = useLiveLooks(atlas, filter, coloring);
  const count = (value: number): string => formatCount(value, i18n.language);
  const numSpecialists = atlas.experts.filter(({ isSpecialist }) => isSpecialist).length;
  return (
    <div className={styles.page}>
      <PageHead page="atlas">
        <p>
          {t('counts', { total: count(atlas.experts.length), specialists: count(numSpecialists) })}
          {atlas.numSkipped > 0 && ` · ${t('skipped', { shown: count(atlas.numSkipped) })}`}
        </p>
      </PageHead>
      <section className={joinClasses(styles.stage, 'always-dark')} aria-label={t('stage')}>
        <Galaxy
          atlas={atlas}
          lookOf={look}
          selected={selected}
          onSelect={setSelected}
          onScene={onScene}
        />
      </section>
      <div className={styles.side}>
        <AtlasControls
          atlas={atlas}
          filter={filter}
          coloring={coloring}
          hasMap={hasMap}
          onFilter={setFilter}
          onColoring={setColoring}
          onFind={setSelected}
        />
        <ExpertCard atlas={atlas} expert={atlas.experts[selected]} />
      </div>
      <div className={styles.table}>
        <AtlasTable atlas={atlas} filter={filter} onSelect={setSelected} />
      </div>
    </div>
  );
}
