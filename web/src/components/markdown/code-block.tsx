import { Download, WrapText } from 'lucide-react';
import { toJsxRuntime } from 'hast-util-to-jsx-runtime';
import { memo, useEffect, useState, type ReactNode } from 'react';
import { useTranslation } from 'react-i18next';
import { Fragment, jsx, jsxs } from 'react/jsx-runtime';
import { IconButton } from '@/components/button';
import { CopyButton } from '@/components/copy-button';
import { joinClasses } from '@/lib/join-classes';
import { saveFile } from '@/lib/save-file';
import { loadHighlighter, type Highlighter } from './highlight';
import styles from './code-block.module.css';

interface CodeBlockProps {
  language: string;
  code: string;
}

const NUMBERED_FROM = 20;
// Colouring takes time in proportion to the length; very long blocks stay plain.
const COLOURED_TO = 60_000;

export const CodeBlock = memo(function CodeBlock({ language, code }: CodeBlockProps) {
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
          <Coloured language={language} code={code} />
        </code>
      </pre>
    </figure>
  );
});

function Coloured({ language, code }: CodeBlockProps): ReactNode {
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
  const tree = code.length > COLOURED_TO ? null : highlight?.(language.toLowerCase(), code);
  return tree ? (toJsxRuntime(tree, { Fragment, jsx, jsxs }) as ReactNode) : code;
}
