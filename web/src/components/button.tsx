// Buttons: one with words, one with an icon alone (whose words are its label and tooltip).
import type { ButtonHTMLAttributes, ReactNode, Ref } from 'react';
import { joinClasses } from '@/lib/join-classes';
import styles from './button.module.css';

type NativeProps = Omit<ButtonHTMLAttributes<HTMLButtonElement>, 'className'>;

interface ButtonProps extends NativeProps {
  variant?: 'plain' | 'primary' | 'danger' | 'quiet';
  icon?: ReactNode;
  isWide?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({ variant = 'plain', icon, isWide, children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={joinClasses(styles.button, styles[variant], isWide && styles.wide)}
    >
      {icon}
      {children}
    </button>
  );
}

interface IconButtonProps extends NativeProps {
  label: string;
  icon: ReactNode;
  isActive?: boolean;
  size?: 'small' | 'medium';
  ref?: Ref<HTMLButtonElement>;
}

export function IconButton({ label, icon, isActive, size = 'medium', ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={joinClasses(styles.icon, styles[size], isActive && styles.active)}
    >
      {icon}
    </button>
  );
}
