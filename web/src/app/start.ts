// What runs once, before the first render.
import { loadChat } from '@/features/chat/stores/chat-store';
import { endpointOf, startConnection, useConnection } from '@/lib/connection/connection-store';
import { startI18n } from '@/lib/i18n/i18n';
import { telemetryFeed } from '@/lib/telemetry/telemetry-feed';
import { resetTelemetry } from '@/lib/telemetry/telemetry-store';
import { startTheme } from '@/lib/theme';

export function startApp(): void {
  startTheme();
  startI18n();
  void loadChat();
  useConnection.subscribe((state, before) => {
    const isOn = state.status === 'connected';
    const wasOn = before.status === 'connected';
    if (isOn && !wasOn) telemetryFeed.start(endpointOf(state));
    if (!isOn && wasOn) {
      telemetryFeed.stop();
      resetTelemetry();
    }
  });
  startConnection();
}
