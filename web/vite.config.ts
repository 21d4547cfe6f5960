import react from '@vitejs/plugin-react';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';
import { early } from './tools/early.ts';
import { licenses } from './tools/licenses.ts';
import { precompress } from './tools/precompress.ts';

// What `npm run dev` passes on to a running `coli serve`.
const SERVER = process.env.COLI_SERVER ?? 'http://127.0.0.1:8000';
const SERVER_PATHS = ['/v1', '/health', '/profile', '/experts', '/events', '/openapi.json'];

/**
 * Every browser that runs the page reads woff2; KaTeX names two older kinds of each font as well.
 * Text that has been laid out in another font stays as it is: nothing moves when the page's own font
 * is late, and the next visit has it at once.
 */
function modernFonts(): Plugin {
  return {
    name: 'coli:modern-fonts',
    enforce: 'pre',
    transform(code, id) {
      if (!id.endsWith('.css')) return undefined;
      if (id.includes('/@fontsource')) {
        return code.replaceAll('font-display: swap', 'font-display: optional');
      }
      if (!id.includes('/katex/')) return undefined;
      return code
        .replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\([^)]*\)/g, '')
        .replaceAll('font-display:block', 'font-display:swap'); // read first, look right later
    },
  };
}

export default defineConfig({
  plugins: [
    react(),
    modernFonts(),
    early('/src/main.tsx', 'geist-latin-wght-normal'),
    licenses(),
    precompress(),
  ],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  server: {
    port: 5173,
    strictPort: true,
    proxy: Object.fromEntries(SERVER_PATHS.map((path) => [path, { target: SERVER }])),
  },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
  test: {
    environment: 'jsdom',
    setupFiles: ['src/testing/setup.ts'],
    include: ['src/**/*.test.{ts,tsx}', 'tools/**/*.test.ts'],
    restoreMocks: true,
    pool: 'threads',
    testTimeout: 30_000,
  },
});
