// The parts of the build that hold a page, by its id.
export const LOADERS = {
  chat: () => import('@/features/chat/components/chat-page'),
  brain: () => import('@/features/brain/components/brain-page'),
  atlas: () => import('@/features/atlas/components/atlas-page'),
  profiling: () => import('@/features/profiling/components/profiling-page'),
  settings: () => import('./settings-page'),
};

export type PageId = keyof typeof LOADERS;

/** The page of a path, as the first part of it says; null if there is none. */
export function pageAt(pathname: string): PageId | null {
  const [, name = ''] = pathname.split('/');
  if (name === '' || name === 'c') return 'chat';
  return Object.hasOwn(LOADERS, name) ? (name as PageId) : null;
}
