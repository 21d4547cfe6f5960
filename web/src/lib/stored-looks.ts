// Where the looks of the page are kept: what runs before the page itself reads them, too.
export const THEME_KEY = 'colibri.theme';
export const LOCALE_KEY = 'colibri-locale';
export const SIDEBAR_KEY = 'colibri.sidebar';
export const RUNTIME_KEY = 'colibri.runtime';
