// Makes unknown text keys a type error. A new namespace is one more line here.
import 'i18next';
import type atlas from './locales/en/atlas.json';
import type brain from './locales/en/brain.json';
import type chat from './locales/en/chat.json';
import type common from './locales/en/common.json';
import type frame from './locales/en/frame.json';
import type profiling from './locales/en/profiling.json';
import type runtime from './locales/en/runtime.json';
import type settings from './locales/en/settings.json';

declare module 'i18next' {
  interface CustomTypeOptions {
    defaultNS: 'common';
    resources: {
      atlas: typeof atlas;
      brain: typeof brain;
      chat: typeof chat;
      common: typeof common;
      frame: typeof frame;
      profiling: typeof profiling;
      runtime: typeof runtime;
      settings: typeof settings;
    };
  }
}
