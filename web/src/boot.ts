// The first module. The page is fetched meanwhile (the build names it in index.html) and run once
// the frame has been seen; its part for this address comes beside it, not after it.
import '@fontsource-variable/geist/wght.css';
import '@/styles/base.css';
import '@/styles/boot.css';
import { afterPaint, markLooks, showFailure, writeHead } from '@/app/first-frame';
import { LOADERS, pageAt } from '@/app/page-loaders';

markLooks();
writeHead(window.location.pathname);
afterPaint(() => {
  const page = pageAt(window.location.pathname);
  // One that fails is told by the page itself, which asks again.
  if (page !== null) LOADERS[page]().catch(() => undefined);
  import('./main').catch(showFailure);
});
