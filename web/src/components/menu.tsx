// A button with a menu: arrows move, Escape and a click elsewhere close. Shown on the top layer, so
// that no scrolling list cuts it off.
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { joinClasses } from '@/lib/join-classes';
import styles from './menu.module.css';

export interface MenuItem {
  label: string;
  onSelect: () => void;
  isDanger?: boolean;
}

export interface TriggerProps {
  'aria-haspopup': 'menu';
  'aria-expanded': boolean;
  'aria-controls': string;
  onClick: () => void;
}

interface MenuProps {
  trigger: (props: TriggerProps) => ReactNode;
  items: readonly MenuItem[];
}

const GAP_PX = 4;

export function Menu({ trigger, items }: MenuProps) {
  const id = useId();
  const anchor = useRef<HTMLSpanElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const [isOpen, setIsOpen] = useState(false);

  useEffect(() => {
    const element = menu.current;
    const button = anchor.current?.querySelector('button');
    if (!isOpen || element === null || !button) return;
    element.showPopover();
    placeBelow(element, button.getBoundingClientRect());
    element.querySelector('button')?.focus();
    const onToggle = (event: ToggleEvent): void => {
      if (event.newState === 'closed') setIsOpen(false);
    };
    element.addEventListener('toggle', onToggle);
    return () => element.removeEventListener('toggle', onToggle);
  }, [isOpen]);

  function close(): void {
    setIsOpen(false);
    anchor.current?.querySelector('button')?.focus();
  }

  function onKeyDown(event: KeyboardEvent): void {
    const buttons = [...(menu.current?.querySelectorAll('button') ?? [])];
    const place = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const last = buttons.length - 1;
    const targets: Record<string, number> = {
      ArrowDown: place === last ? 0 : place + 1,
      ArrowUp: place <= 0 ? last : place - 1,
      Home: 0,
      End: last,
    };
    const target = targets[event.key];
    if (event.key === 'Escape' || event.key === 'Tab') close();
    if (event.key === 'Escape') event.stopPropagation();
    if (target === undefined) return;
    event.preventDefault();
    buttons[target]?.focus();
  }

  return (
    <span ref={anchor} className={styles.anchor}>
      {trigger({
        'aria-haspopup': 'menu',
        'aria-expanded': isOpen,
        'aria-controls': id,
        onClick: () => setIsOpen(!isOpen),
      })}
      {isOpen && (
        <div
          ref={menu}
          id={id}
          role="menu"
          tabIndex={-1}
          popover="auto"
          className={styles.menu}
          onKeyDown={onKeyDown}
        >
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              className={joinClasses(styles.item, item.isDanger && styles.danger)}
              onClick={() => {
                close();
                item.onSelect();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </span>
  );
}

function placeBelow(element: HTMLElement, anchor: DOMRect): void {
  const { offsetWidth: width, offsetHeight: height } = element;
  const left = Math.max(GAP_PX, Math.min(anchor.right - width, window.innerWidth - width - GAP_PX));
  const fitsBelow = anchor.bottom + GAP_PX + height <= window.innerHeight;
  const top = fitsBelow ? anchor.bottom + GAP_PX : Math.max(GAP_PX, anchor.top - GAP_PX - height);
  element.style.left = `${left}px`;
  element.style.top = `${top}px`;
}
