// Writes NAME.br and NAME.gz beside every text file of the build, so that the server only picks.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const TEXT = /\.(?:html|js|css|svg|json|webmanifest|txt)$/;
const WORTHWHILE_BYTES = 1024;

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile());
}

/** Compress the files below a folder; returns how many were. */
export function compressFolder(folder: string): number {
  let count = 0;
  for (const path of filesBelow(folder)) {
    const content = readFileSync(path);
    if (!TEXT.test(path) || content.length < WORTHWHILE_BYTES) continue;
    writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
    writeFileSync(
      `${path}.br`,
      brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
    );
    count += 1;
  }
  return count;
}

/** The Vite plugin that does so after a build. */
export function precompress(): Plugin {
  let folder = 'dist';
  return {
    name: 'precompress',
    apply: 'build',
    configResolved(config) {
      folder = config.build.outDir;
    },
    closeBundle() {
      compressFolder(folder);
    },
  };
}
