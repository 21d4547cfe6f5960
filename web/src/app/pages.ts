// The pages of the dashboard. A new one is a line here, a component that fills `main`, its part of
// the build in page-loaders.ts, and texts under `nav` in common.json.
import { Brain, Gauge, MessageSquare, Settings, Sparkles, type LucideIcon } from 'lucide-react';
import { lazy, type ComponentType } from 'react';
import { LOADERS, type PageId } from './page-loaders';

export interface Page {
  /** Its text is `nav.<id>`; Alt+1… opens pages in this order. */
  id: PageId;
  /** The first is what links lead to. */
  paths: readonly [string, ...string[]];
  icon: LucideIcon;
  Component: ComponentType;
}

export const PAGES: readonly Page[] = [
  { id: 'chat', paths: ['/', '/c/:id'], icon: MessageSquare, Component: lazy(LOADERS.chat) },
  { id: 'brain', paths: ['/brain'], icon: Brain, Component: lazy(LOADERS.brain) },
  { id: 'atlas', paths: ['/atlas'], icon: Sparkles, Component: lazy(LOADERS.atlas) },
  { id: 'profiling', paths: ['/profiling'], icon: Gauge, Component: lazy(LOADERS.profiling) },
  { id: 'settings', paths: ['/settings'], icon: Settings, Component: lazy(LOADERS.settings) },
];
