// What of the galaxy is shown, in which colours, and a way to a certain expert.
import { Search } from 'lucide-react';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import type { Atlas } from '@/lib/atlas/atlas';
import { findExpert, topicColor, type Filter } from '../model/galaxy';
import { COLORINGS, type Coloring } from '../model/point-looks';
import styles from './atlas-controls.module.css';

interface AtlasControlsProps {
  atlas: Atlas;
  filter: Filter;
  coloring: Coloring;
  /** Whether the server tells tier and heat. */
  hasMap: boolean;
  onFilter: (filter: Filter) => void;
  onColoring: (coloring: Coloring) => void;
  onFind: (index: number) => void;
}

export function AtlasControls(props: AtlasControlsProps) {
  const { atlas, filter, coloring, hasMap, onFilter, onColoring, onFind } = props;
  const { t } = useTranslation('atlas');
  const [text, setText] = useState('');
  const first = atlas.experts[0]?.layer ?? 0;
  const last = atlas.experts.at(-1)?.layer ?? 0;
  const isUnknown = text.trim() !== '' && findExpert(atlas, text) < 0;

  const toggle = (index: number): void => {
    const hiddenTopics = new Set(filter.hiddenTopics);
    if (!hiddenTopics.delete(index)) hiddenTopics.add(index);
    onFilter({ ...filter, hiddenTopics });
  };
  const setLayer = (place: 0 | 1, value: number): void => {
    const [from, to] = filter.layers;
    const layers =
      place === 0
        ? ([value, Math.max(value, to)] as const)
        : ([Math.min(from, value), value] as const);
    onFilter({ ...filter, layers });
  };

  return (
    <div className={styles.controls}>
      <label className={styles.search}>
        <Search size={15} aria-hidden="true" />
        <input
          type="search"
          placeholder={t('search.hint')}
          aria-label={t('search.label')}
          aria-invalid={isUnknown}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            onFind(findExpert(atlas, event.target.value));
          }}
        />
      </label>
      <fieldset className={styles.topics}>
        <legend>{t('topics')}</legend>
        {atlas.topics.map((topic, index) => (
          <button
            key={topic}
            type="button"
            aria-pressed={!filter.hiddenTopics.has(index)}
            onClick={() => toggle(index)}
          >
            <i style={{ background: topicColor(index) }} />
            {topic}
          </button>
        ))}
      </fieldset>
      <div className={styles.layers}>
        {([0, 1] as const).map((place) => (
          <label key={place}>
            {t(place === 0 ? 'layers.from' : 'layers.to', { layer: filter.layers[place] })}
            <input
              type="range"
              min={first}
              max={last}
              value={filter.layers[place]}
              onChange={(event) => setLayer(place, event.target.valueAsNumber)}
            />
          </label>
        ))}
      </div>
      <label className={styles.check}>
        <input
          type="checkbox"
          checked={filter.isSpecialistsOnly}
          onChange={(event) => onFilter({ ...filter, isSpecialistsOnly: event.target.checked })}
        />
        {t('specialistsOnly')}
      </label>
      <label className={styles.coloring}>
        {t('coloring.label')}
        <select
          value={coloring}
          onChange={(event) => {
            const chosen = COLORINGS.find((name) => name === event.target.value);
            if (chosen !== undefined) onColoring(chosen);
          }}
        >
          {COLORINGS.map((name) => (
            <option key={name} value={name} disabled={name !== 'topic' && !hasMap}>
              {t(`coloring.${name}`)}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}
