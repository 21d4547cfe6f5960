import { Download, WrapText } from 'lucide-react';
import { toJsxRuntime } from 'hast-util-to-jsx-runtime';
import { memo, useEffect, useMemo, useState, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Fragment, jsx, jsxs } from 'react/jsx-runtime';
import { IconButton } from '@/components/button';
import { CopyButton } from '@/components/copy-button';
import { joinClasses } from '@/lib/join-classes';
import { saveFile } from '@/lib/save-file';
import { loadHighlighter, type Highlighter } from './highlight';
import { settledEnd } from './settled-end';
import styles from './code-block.module.css';

interface CodeBlockProps {
  language: string;
  code: string;
  /** More of it may follow. */
  isGrowing: boolean;
}

const NUMBERED_FROM = 20;
// Colouring takes time in proportion to the length; very long blocks stay plain.
const COLOURED_TO = 60_000;

export const CodeBlock = memo(function CodeBlock({ language, code, isGrowing }: CodeBlockProps) {
  const { t } = useTranslation();
  const [isWrapped, setIsWrapped] = useState(false);
  const numLines = code.split('\n').length;
  return (
    <figure className={styles.block}>
      <figcaption className={styles.head}>
        <span>{language || t('code.plain')}</span>
        <span className={styles.tools}>
          <IconButton
            size="small"
            label={t('code.wrap')}
            aria-pressed={isWrapped}
            isActive={isWrapped}
            icon={<WrapText size={15} />}
            onClick={() => setIsWrapped(!isWrapped)}
          />
          <IconButton
            size="small"
            label={t('code.download')}
            icon={<Download size={15} />}
            onClick={() => saveFile(`code.${language || 'txt'}`, code, 'text/plain')}
          />
          <CopyButton text={() => code} label={t('code.copy')} />
        </span>
      </figcaption>
      {/* Long lines scroll inside the block, by keyboard too. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre className={joinClasses(styles.code, isWrapped && styles.wrapped)} tabIndex={0}>
        {numLines > NUMBERED_FROM && !isWrapped && (
          <span className={styles.numbers} aria-hidden="true">
            {Array.from({ length: numLines }, (_, index) => index + 1).join('\n')}
          </span>
        )}
        <code>
          <Coloured language={language} code={code} isGrowing={isGrowing} />
        </code>
      </pre>
    </figure>
  );
});

function Coloured({ language, code, isGrowing }: CodeBlockProps): ReactNode {
  const [highlight, setHighlight] = useState<Highlighter | null>(null);
  useEffect(() => {
    let isGone = false;
    void loadHighlighter().then((loaded) => {
      if (!isGone) setHighlight(() => loaded);
    });
    return () => {
      isGone = true;
    };
  }, []);
  const end = isGrowing ? settledEnd(code) : code.length;
  const settled = code.slice(0, end);
  const coloured = useMemo(() => {
    if (settled.length === 0 || settled.length > COLOURED_TO) return settled;
    const tree = highlight?.(language.toLowerCase(), settled);
    return tree ? (toJsxRuntime(tree, { Fragment, jsx, jsxs }) as ReactNode) : settled;
  }, [highlight, language, settled]);
  return (
    <>
      {coloured}
      {code.slice(end)}
    </>
  );
}
