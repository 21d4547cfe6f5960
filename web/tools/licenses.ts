// Writes THIRD-PARTY-LICENSES.txt and packages.json into the build: what of npm is inside it.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'vite';

const FILE = /^(?:licen[cs]e|copying|notice)(?:[.-].*)?$/i;

export interface BundledPackage {
  name: string;
  version: string;
  license: string;
  texts: string[];
}

/** Return the package folders that modules of a build lie in. */
export function packageFolders(ids: Iterable<string>): string[] {
  const folders = new Set<string>();
  for (const id of ids) {
    const found = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/?]+)\//.exec(id);
    if (found?.[1] !== undefined) folders.add(found[1]);
  }
  return [...folders].sort();
}

/** Read what a package says of itself; one without a licence cannot be shipped. */
export function readPackage(folder: string): BundledPackage {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    name: string;
    version: string;
    license?: string;
  };
  if (about.license === undefined) throw new Error(`${about.name} names no licence`);
  const files = readdirSync(folder).filter((name) => FILE.test(name));
  const texts = files.sort().map((name) => readFileSync(join(folder, name), 'utf8').trim());
  return { name: about.name, version: about.version, license: about.license, texts };
}

/** Return the page that carries every licence. */
export function licensePage(packages: BundledPackage[]): string {
  const parts = packages.map(({ name, version, license, texts }) => {
    const body = texts.length > 0 ? texts.join('\n\n') : `Licence: ${license} (no text shipped)`;
    return `${name} ${version} (${license})\n\n${body}\n`;
  });
  return `The dashboard contains these packages.\n\n${parts.join(`\n${'-'.repeat(72)}\n\n`)}`;
}

/** The Vite plugin that does so. */
export function licenses(): Plugin {
  return {
    name: 'licenses',
    apply: 'build',
    generateBundle() {
      // A style sheet that another one imports is no module: import packages from scripts.
      const folders = packageFolders(this.getModuleIds()).filter((folder) =>
        existsSync(join(folder, 'package.json')),
      );
      const packages = folders.map(readPackage).sort((a, b) => (a.name < b.name ? -1 : 1));
      const list = packages.map(({ name, version, license }) => ({ name, version, license }));
      this.emitFile({
        type: 'asset',
        fileName: 'THIRD-PARTY-LICENSES.txt',
        source: licensePage(packages),
      });
      this.emitFile({
        type: 'asset',
        fileName: 'packages.json',
        source: `${JSON.stringify(list, null, 1)}\n`,
      });
    },
  };
}
