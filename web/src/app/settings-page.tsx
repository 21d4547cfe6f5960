// The settings of all features on one page.
import { DataGroup } from '@/features/chat/components/data-group';
import { InferenceGroup } from '@/features/chat/components/inference-group';
import { AboutGroup } from '@/features/settings/components/about-group';
import { AppearanceGroup } from '@/features/settings/components/appearance-group';
import { ConnectionGroup } from '@/features/settings/components/connection-group';
import { SettingsFrame } from '@/features/settings/components/settings-frame';
import { ShortcutTable } from '@/features/settings/components/shortcut-table';

export default function SettingsPage() {
  return (
    <SettingsFrame>
      <ConnectionGroup />
      <InferenceGroup />
      <AppearanceGroup />
      <DataGroup />
      <ShortcutTable />
      <AboutGroup />
    </SettingsFrame>
  );
}
