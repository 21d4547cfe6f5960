// Which sides of the shell are open; kept for the next visit.
import { create } from 'zustand';
import { readStored, writeStored } from '@/lib/storage';
import { RUNTIME_KEY, SIDEBAR_KEY } from '@/lib/stored-looks';

interface ShellState {
  isSidebarOpen: boolean;
  isRuntimeOpen: boolean;
  isSheetOpen: boolean;
  toggleSidebar: () => void;
  toggleRuntime: () => void;
  setSheetOpen: (isOpen: boolean) => void;
}

export const useShell = create<ShellState>()((set, get) => ({
  isSidebarOpen: readStored(SIDEBAR_KEY) !== 'closed',
  isRuntimeOpen: readStored(RUNTIME_KEY) !== 'closed',
  isSheetOpen: false,
  toggleSidebar: () => {
    const isSidebarOpen = !get().isSidebarOpen;
    writeStored(SIDEBAR_KEY, isSidebarOpen ? null : 'closed');
    set({ isSidebarOpen });
  },
  toggleRuntime: () => {
    const isRuntimeOpen = !get().isRuntimeOpen;
    writeStored(RUNTIME_KEY, isRuntimeOpen ? null : 'closed');
    set({ isRuntimeOpen });
  },
  setSheetOpen: (isSheetOpen) => set({ isSheetOpen }),
}));
