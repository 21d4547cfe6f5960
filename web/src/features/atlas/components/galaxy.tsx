// The galaxy as a part of the page: the scene, the topics' names over it, and what hands do to it.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent } from 'react';
import { useTranslation } from 'react-i18next';
import type { Atlas } from '@/lib/atlas/atlas';
import { useMedia } from '@/lib/use-media';
import { anchors, placeOf, topicColor } from '../model/galaxy';
import { spreadLabels } from '../model/label-places';
import type { Look } from '../model/point-looks';
import type { GalaxyScene } from './galaxy-scene';
import styles from './galaxy.module.css';

interface GalaxyProps {
  atlas: Atlas;
  lookOf: (index: number) => Look;
  selected: number;
  onSelect: (index: number) => void;
  /** Where the scene is kept while there is one, e.g. to let points flash. */
  onScene: (scene: GalaxyScene | null) => void;
}

const STEP = 0.12; // radians per key press
const PER_PIXEL = 0.006;
const CLICK_PX = 4;

export default function Galaxy({ atlas, lookOf, selected, onSelect, onScene }: GalaxyProps) {
  const { t } = useTranslation('atlas');
  const canvasRef = useRef<HTMLCanvasElement>(null);
  const labelsRef = useRef<HTMLDivElement>(null);
  const markRef = useRef<HTMLElement>(null);
  const sceneRef = useRef<GalaxyScene | null>(null);
  const isStill = useMedia('(prefers-reduced-motion: reduce)');
  const [isBroken, setIsBroken] = useState(false);
  const spheres = useMemo(() => anchors(atlas.topics.length), [atlas]);
  const places = useMemo(
    () => atlas.experts.map((expert) => placeOf(expert, spheres)),
    [atlas, spheres],
  );
  const latest = useRef({ lookOf, selected, onScene });

  useEffect(() => {
    const canvas = canvasRef.current;
    if (canvas === null) return;
    let isOver = false;
    const observer = new ResizeObserver(() => resize(sceneRef.current, canvas));
    void import('./galaxy-scene').then(({ GalaxyScene: Scene }) => {
      if (isOver) return;
      try {
        const scene = new Scene({
          canvas,
          places,
          anchors: spheres,
          isStill,
          onLabels: (labels) => {
            placeLabels(labelsRef.current, labels);
            placeMark(markRef.current, sceneRef.current, latest.current.selected);
          },
        });
        sceneRef.current = scene;
        scene.setLooks(latest.current.lookOf);
        resize(scene, canvas);
        observer.observe(canvas);
        latest.current.onScene(scene);
      } catch {
        setIsBroken(true); // no WebGL; the table has all that is known
      }
    });
    return () => {
      isOver = true;
      observer.disconnect();
      sceneRef.current?.stop();
      sceneRef.current = null;
      latest.current.onScene(null);
    };
  }, [places, spheres, isStill]);
  useEffect(() => {
    latest.current = { lookOf, selected, onScene };
    sceneRef.current?.setLooks(lookOf);
  }, [lookOf, selected, onScene]);

  const hands = useHands(sceneRef, onSelect);
  if (isBroken) return <p className={styles.broken}>{t('noWebgl')}</p>;
  return (
    <div className={styles.galaxy}>
      <canvas
        ref={canvasRef}
        className={styles.canvas}
        // A picture that keys turn: there is no other role for it.
        // eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role
        role="img"
        tabIndex={0}
        aria-label={t('galaxy', { count: atlas.experts.length })}
        aria-describedby="atlas-keys"
        {...hands}
      />
      <p id="atlas-keys" className="visually-hidden">
        {t('keys')}
      </p>
      <div ref={labelsRef} aria-hidden="true">
        {atlas.topics.map((topic, index) => (
          <span
            key={topic}
            className={styles.label}
            style={{ color: `color-mix(in srgb, ${topicColor(index)} 65%, #fff)` }}
          >
            {topic}
          </span>
        ))}
      </div>
      <i ref={markRef} className={styles.mark} aria-hidden="true" hidden={selected < 0} />
    </div>
  );
}

function resize(scene: GalaxyScene | null, canvas: HTMLCanvasElement): void {
  scene?.resize(canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio);
}

function placeLabels(
  parent: HTMLElement | null,
  labels: readonly { x: number; y: number; facing: number }[],
): void {
  if (parent === null) return;
  const { clientWidth = 0, clientHeight = 0 } = parent.parentElement ?? {};
  const nodes = [...parent.children].filter((node) => node instanceof HTMLElement);
  const sized = labels.map((label, index) => ({
    ...label,
    width: nodes[index]?.offsetWidth ?? 0,
    height: nodes[index]?.offsetHeight ?? 0,
  }));
  spreadLabels(sized, { width: clientWidth, height: clientHeight }).forEach(({ x, y }, index) => {
    const [node, label] = [nodes[index], sized[index]];
    if (node === undefined || label === undefined) return;
    // What it gives way by is apart: it slides there, while the galaxy takes it along at once.
    node.style.transform = `translate(${x}px, ${label.y}px) translate(-50%, -50%)`;
    node.style.translate = `0 ${y - label.y}px`;
    node.style.opacity = String(0.6 + 0.4 * label.facing);
  });
}

function placeMark(mark: HTMLElement | null, scene: GalaxyScene | null, selected: number): void {
  if (mark === null || scene === null || selected < 0) return;
  const { x, y } = scene.placeOf(selected);
  mark.style.transform = `translate(${x}px, ${y}px) translate(-50%, -50%)`;
}

type SceneRef = React.RefObject<GalaxyScene | null>;

/** What pointers, the wheel and keys do to the scene. */
function useHands(sceneRef: SceneRef, onSelect: (index: number) => void) {
  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const moved = useRef(0);

  const onPointerDown = (event: PointerEvent<HTMLCanvasElement>): void => {
    event.currentTarget.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved.current = 0;
    sceneRef.current?.hold(true);
  };
  const onPointerMove = (event: PointerEvent): void => {
    const before = pointers.current.get(event.pointerId);
    if (before === undefined) return;
    const now = { x: event.clientX, y: event.clientY };
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    pointers.current.set(event.pointerId, now);
    moved.current += Math.abs(dx) + Math.abs(dy);
    if (other === undefined) sceneRef.current?.turnBy(-dx * PER_PIXEL, dy * PER_PIXEL);
    else sceneRef.current?.zoomBy(distance(before, other) / Math.max(1, distance(now, other)));
  };
  const onPointerUp = (event: PointerEvent<HTMLCanvasElement>): void => {
    pointers.current.delete(event.pointerId);
    if (pointers.current.size === 0) sceneRef.current?.hold(false);
    if (event.type !== 'pointerup' || moved.current > CLICK_PX) return;
    const box = event.currentTarget.getBoundingClientRect();
    const found = sceneRef.current?.pick(event.clientX - box.left, event.clientY - box.top);
    onSelect(found ?? -1);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const scene = sceneRef.current;
    const actions: Record<string, (() => void) | undefined> = {
      ArrowLeft: () => scene?.turnBy(-STEP, 0),
      ArrowRight: () => scene?.turnBy(STEP, 0),
      ArrowUp: () => scene?.turnBy(0, STEP),
      ArrowDown: () => scene?.turnBy(0, -STEP),
      '+': () => scene?.zoomBy(0.9),
      '-': () => scene?.zoomBy(1.1),
    };
    const action = actions[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };
  return {
    onPointerDown,
    onPointerMove,
    onPointerUp,
    onPointerCancel: onPointerUp,
    onKeyDown,
    onWheel: (event: React.WheelEvent) => sceneRef.current?.zoomBy(Math.exp(event.deltaY * 0.001)),
  };
}

function distance(a: { x: number; y: number }, b: { x: number; y: number }): number {
  return Math.hypot(a.x - b.x, a.y - b.y);
}
