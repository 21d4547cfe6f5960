// Runs before each test file.
import '@testing-library/jest-dom/vitest';
import 'fake-indexeddb/auto';
import { cleanup, configure } from '@testing-library/react';
import { afterEach } from 'vitest';
import { startI18n } from '@/lib/i18n/i18n';

// A machine that others use may take long to load a chunk; a second is no reason to fail.
configure({ asyncUtilTimeout: 10_000 });
startI18n();
afterEach(cleanup);
