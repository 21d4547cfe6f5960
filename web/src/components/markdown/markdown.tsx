// Markdown of a model. Nothing in it becomes markup of the page: HTML is shown as text, links lead
// only to http, https and mail, images of other hosts are links.
import type { Element } from 'hast';
import { createContext, memo, use, type ComponentProps, type ReactNode } from 'react';
import ReactMarkdown, { type Components, type ExtraProps } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';
import { ErrorBoundary } from '@/components/error-boundary';
import { CodeBlock } from './code-block';
import { Formula } from './formula';
import { hasMath, markMath } from './mark-math';
import { splitBlocks } from './split-blocks';
import styles from './markdown.module.css';

const PLUGINS = [remarkGfm];
const PLUGINS_WITH_MATH = [remarkGfm, remarkMath];
// Looking for bare addresses takes time with the square of the length of what has no blank.
const UNBROKEN = /\S{5000}/;
/** Whether more may follow in the block around; context, so that its end parses nothing anew. */
const Growing = createContext(false);
const SAFE_LINK = /^(?:https?:|mailto:)/i;

function safeUrl(url: string): string {
  return SAFE_LINK.test(url) || url.startsWith('#') ? url : '';
}

type Tag<T extends 'a' | 'code' | 'img' | 'p' | 'pre' | 'table'> = ComponentProps<T> & ExtraProps;

function Link({ href, children }: Tag<'a'>) {
  if (href === undefined || href === '') return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function ImageLink({ src, alt }: Tag<'img'>) {
  return <Link href={typeof src === 'string' ? src : ''}>{alt === '' ? src : alt}</Link>;
}

function Table({ children }: Tag<'table'>) {
  return (
    // Wide tables scroll by themselves, by keyboard too.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={styles.table} tabIndex={0}>
      <table>{children}</table>
    </div>
  );
}

/** A fenced block: its language and its text, out of the `code` element that it holds. */
function Pre({ node }: Tag<'pre'>) {
  const isGrowing = use(Growing);
  const code = node?.children[0];
  if (code?.type !== 'element') return null;
  const name = String(classesOf(code)[0] ?? '');
  const text = textOf(code).replace(/\n$/, '');
  if (name === MATH) return <Formula tex={text} isDisplay />;
  return <CodeBlock language={name.replace(/^language-/, '')} code={text} isGrowing={isGrowing} />;
}

/** Code within a line; a formula comes as such, too. */
function Code({ node, children }: Tag<'code'>) {
  if (node === undefined || !classesOf(node).includes(MATH)) return <code>{children}</code>;
  return <Formula tex={textOf(node)} isDisplay={false} />;
}

/** A formula that is all there is in a paragraph is shown large. */
function Paragraph({ node, children }: Tag<'p'>) {
  const only = node?.children.length === 1 ? node.children[0] : undefined;
  if (only?.type === 'element' && classesOf(only).includes(MATH)) {
    return <Formula tex={textOf(only)} isDisplay />;
  }
  return <p>{children}</p>;
}

const MATH = 'language-math';

function classesOf(element: Element): (string | number)[] {
  const names = element.properties.className;
  return Array.isArray(names) ? names : [];
}

function textOf(element: Element): string {
  return element.children.map((child) => (child.type === 'text' ? child.value : '')).join('');
}

function heading(level: 'h3' | 'h4' | 'h5' | 'h6') {
  return function Heading({ children }: { children?: ReactNode }) {
    const Name = level;
    return <Name>{children}</Name>;
  };
}

// The page has its own h1 and h2.
const COMPONENTS: Components = {
  a: Link,
  code: Code,
  p: Paragraph,
  img: ImageLink,
  pre: Pre,
  table: Table,
  h1: heading('h3'),
  h2: heading('h4'),
  h3: heading('h5'),
  h4: heading('h6'),
  h5: heading('h6'),
};

const Block = memo(function Block({ text }: { text: string }) {
  const isUnbroken = UNBROKEN.test(text);
  const isMath = !isUnbroken && hasMath(text);
  const shown = (
    <ReactMarkdown
      remarkPlugins={isUnbroken ? [] : isMath ? PLUGINS_WITH_MATH : PLUGINS}
      components={COMPONENTS}
      urlTransform={safeUrl}
    >
      {isMath ? markMath(text) : text}
    </ReactMarkdown>
  );
  return isUnbroken ? <div className={styles.unbroken}>{shown}</div> : shown;
});

interface MarkdownProps {
  text: string;
  /** More may follow at the end. */
  isGrowing?: boolean;
}

export default function Markdown({ text, isGrowing = false }: MarkdownProps) {
  return (
    <div className={styles.markdown}>
      {splitBlocks(text).map((block, index, all) => (
        // Blocks only ever grow at the end, so the place is the identity.
        <Growing key={index} value={isGrowing && index === all.length - 1}>
          {/* Thousands of marks inside each other are more than a parser bears. */}
          <ErrorBoundary fallback={<div className={styles.plain}>{block}</div>}>
            <Block text={block} />
          </ErrorBoundary>
        </Growing>
      ))}
    </div>
  );
}
