// What lies over the page: traps the focus and gives it back, closes by Escape or a press beside it.
import { useEffect, useRef, type ReactNode } from 'react';

interface ModalProps {
  isOpen: boolean;
  label: string;
  className: string | undefined;
  side?: 'left' | 'right';
  onClose: () => void;
  children: ReactNode;
}

export function Modal({ isOpen, label, className, side, onClose, children }: ModalProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    if (element === null) return;
    if (isOpen && !element.open) element.showModal();
    if (!isOpen && element.open) element.close();
  }, [isOpen]);
  return (
    // A press on the backdrop counts as one on the dialog itself; Escape does the same by keyboard.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog
      ref={dialog}
      className={className}
      data-side={side}
      aria-label={label}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      {isOpen && children}
    </dialog>
  );
}
