import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { licensePage, packageFolders, readPackage } from './licenses.ts';

function packageFolder(about: object): string {
  const folder = join(mkdtempSync(join(tmpdir(), 'licenses-')), 'thing');
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), JSON.stringify(about));
  return folder;
}

test('modules lead to the innermost package they lie in', () => {
  const ids = [
    '/a/src/main.tsx',
    '/a/node_modules/react/index.js',
    '\0/a/node_modules/react/cjs/react.js?commonjs',
    '/a/node_modules/@x/y/node_modules/z/z.js',
    '/a/node_modules/@x/y/y.css',
  ];
  expect(packageFolders(ids)).toEqual([
    '/a/node_modules/@x/y',
    '/a/node_modules/@x/y/node_modules/z',
    '/a/node_modules/react',
  ]);
});

test('the page has the text of every licence file', () => {
  const folder = packageFolder({ name: 'thing', version: '1.2.3', license: 'MIT' });
  writeFileSync(join(folder, 'LICENSE.md'), 'Permission is granted\n');
  writeFileSync(join(folder, 'NOTICE'), 'Made by us\n');
  writeFileSync(join(folder, 'licenses.js'), 'code');
  const page = licensePage([readPackage(folder)]);
  expect(page).toContain('thing 1.2.3 (MIT)\n\nPermission is granted\n\nMade by us\n');
  expect(page).not.toContain('code');
});

test('a package without a licence stops the build', () => {
  expect(() => readPackage(packageFolder({ name: 'thing', version: '1.0.0' }))).toThrow(
    'thing names no licence',
  );
});
