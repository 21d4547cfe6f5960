// Names in the head of index.html what its first module is going to ask for, so that it is fetched
// while the frame is painted: the page's modules, its styles, and the font of its text.
import type { HtmlTagDescriptor, Plugin, Rolldown } from 'vite';

type Bundle = Rolldown.OutputBundle;
type Chunk = Rolldown.OutputChunk;

/** A chunk and all that it imports when it is run, each once. */
export function chunksOf(bundle: Bundle, first: Chunk): Chunk[] {
  const found = new Set([first]);
  for (const chunk of found) {
    for (const name of chunk.imports) {
      const imported = bundle[name];
      if (imported?.type === 'chunk') found.add(imported);
    }
  }
  return [...found];
}

/**
 * The Vite plugin for it.
 *
 * @param module end of the path of the module that is imported first
 * @param font beginning of the name of the font's file
 */
export function early(module: string, font: string): Plugin {
  return {
    name: 'coli:early',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(html, { bundle = {} }) {
        const files = Object.values(bundle);
        const main = files.find(
          (file) => file.type === 'chunk' && (file.facadeModuleId?.endsWith(module) ?? false),
        );
        const text = files.find(({ fileName }) => fileName.startsWith(`assets/${font}`));
        if (main?.type !== 'chunk' || text === undefined) {
          throw new Error(`the build has no ${module} or no ${font}`);
        }
        const chunks = chunksOf(bundle, main);
        const scripts = chunks.map(({ fileName }) => fileName);
        const styles = chunks.flatMap(({ viteMetadata }) => [...(viteMetadata?.importedCss ?? [])]);
        const tag = (attrs: Record<string, string | true>, name: string): HtmlTagDescriptor => ({
          tag: 'link',
          attrs: { ...attrs, crossorigin: true, href: `/${name}` },
          injectTo: 'head',
        });
        // What the first module itself imports is there already, and the frame needs it first.
        const later = (attrs: Record<string, string>, names: string[]): HtmlTagDescriptor[] =>
          names
            .filter((name) => !html.includes(`/${name}"`))
            .map((name) => tag({ ...attrs, fetchpriority: 'low' }, name));
        return [
          tag({ rel: 'preload', as: 'font', type: 'font/woff2' }, text.fileName),
          ...later({ rel: 'preload', as: 'style' }, styles),
          ...later({ rel: 'modulepreload' }, scripts),
        ];
      },
    },
  };
}
