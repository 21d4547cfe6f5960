// Lint rules of the dashboard. Zones: shared code (components, lib) knows no feature, a feature
// knows no other feature and not the app; the app may know all.
import js from '@eslint/js';
import globals from 'globals';
import jsxA11y from 'eslint-plugin-jsx-a11y';
import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';
import { readdirSync } from 'node:fs';

const features = readdirSync(new URL('./src/features', import.meta.url));

function mayNotImport(files, groups, message) {
  return {
    files,
    rules: { 'no-restricted-imports': ['error', { patterns: [{ group: groups, message }] }] },
  };
}

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'coverage'] },
  js.configs.recommended,
  {
    files: ['**/*.{ts,tsx}'],
    extends: [
      tseslint.configs.strictTypeChecked,
      tseslint.configs.stylisticTypeChecked,
      jsxA11y.flatConfigs.strict,
      reactHooks.configs.flat['recommended-latest'],
    ],
    languageOptions: {
      globals: globals.browser,
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      'no-console': 'error',
      'no-restricted-globals': [
        'error',
        { name: 'fetch', message: 'lib/api-client.ts is the only one who fetches' },
        { name: 'localStorage', message: 'lib/storage.ts copes with browsers that refuse it' },
        { name: 'sessionStorage', message: 'lib/storage.ts copes with browsers that refuse it' },
      ],
    },
  },
  mayNotImport(
    ['src/{components,lib}/**'],
    ['@/features/*', '@/app/*', '**/features/**', '**/app/**'],
    'shared code knows neither features nor the app',
  ),
  ...features.map((name) =>
    mayNotImport(
      [`src/features/${name}/**`],
      [
        '@/app/*',
        ...features.filter((other) => other !== name).map((other) => `@/features/${other}/**`),
      ],
      'a feature knows no other feature and not the app; share through lib or components',
    ),
  ),
  {
    files: ['src/lib/api-client.ts', 'src/lib/storage.ts', 'src/testing/**', '**/*.test.{ts,tsx}'],
    rules: { 'no-restricted-globals': 'off' },
  },
  {
    files: ['*.js', '*.ts', 'tools/**'],
    languageOptions: { globals: globals.node },
    rules: { 'no-console': 'off' },
  },
);
