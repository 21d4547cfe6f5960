// The pages of the dashboard. A new one is a line here, a component that fills `main`, and texts
// under `nav` in common.json.
import { Brain, Gauge, MessageSquare, Settings, Sparkles, type LucideIcon } from 'lucide-react';
import { lazy, type ComponentType } from 'react';
import ChatPage from '@/features/chat/components/chat-page';

export interface Page {
  /** Its text is `nav.<id>`; Alt+1… opens pages in this order. */
  id: 'chat' | 'brain' | 'atlas' | 'profiling' | 'settings';
  /** The first is what links lead to. */
  paths: readonly [string, ...string[]];
  icon: LucideIcon;
  Component: ComponentType;
}

export const PAGES: readonly Page[] = [
  { id: 'chat', paths: ['/', '/c/:id'], icon: MessageSquare, Component: ChatPage },
  {
    id: 'brain',
    paths: ['/brain'],
    icon: Brain,
    Component: lazy(() => import('@/features/brain/components/brain-page')),
  },
  {
    id: 'atlas',
    paths: ['/atlas'],
    icon: Sparkles,
    Component: lazy(() => import('@/features/atlas/components/atlas-page')),
  },
  {
    id: 'profiling',
    paths: ['/profiling'],
    icon: Gauge,
    Component: lazy(() => import('@/features/profiling/components/profiling-page')),
  },
  {
    id: 'settings',
    paths: ['/settings'],
    icon: Settings,
    Component: lazy(() => import('./settings-page')),
  },
];
