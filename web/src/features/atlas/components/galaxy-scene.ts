// The galaxy in three dimensions: all experts as one cloud of points, drawn by the graphics card or
// by software in its place. Draws only when something changed.
import {
  BufferAttribute,
  BufferGeometry,
  PerspectiveCamera,
  Points,
  Scene,
  ShaderMaterial,
  Vector3,
  WebGLRenderer,
} from 'three';
import { Pulses } from '@/lib/experts/pulses';
import type { Point } from '../model/galaxy';
import type { Look } from '../model/point-looks';

const FIELD = 42; // degrees
const NEAREST = 1.6;
const FARTHEST = 6;
const SPIN_PER_S = 0.06; // radians
const MAX_TILT = 1.35;
const PICK_PX = 14;
const MAX_RATIO = 2;
const NAMES = 0.95; // the narrowest shape that holds the galaxy and the names beside it

const VERTEX = `
  attribute vec3 tint;
  attribute float size;
  attribute float flash;
  uniform float scale;
  varying vec4 paint;
  void main() {
    vec4 seen = modelViewMatrix * vec4(position, 1.0);
    float depth = clamp((-seen.z - 1.2) / 3.6, 0.0, 1.0);
    float alpha = size > 5.0 ? mix(1.0, 0.45, depth) : mix(0.7, 0.22, depth);
    paint = vec4(mix(tint, vec3(1.0), flash), max(alpha, flash));
    gl_Position = projectionMatrix * seen;
    gl_PointSize = size * (1.0 + 0.9 * flash) * scale / -seen.z;
  }`;
const FRAGMENT = `
  varying vec4 paint;
  void main() {
    float away = length(gl_PointCoord - 0.5);
    if (away > 0.5) discard;
    gl_FragColor = vec4(paint.rgb, paint.a * smoothstep(0.5, 0.36, away));
  }`;

export interface SceneOptions {
  canvas: HTMLCanvasElement;
  places: readonly Point[];
  anchors: readonly Point[];
  /** Told after each frame where the topics' labels belong, and how much they face the viewer. */
  onLabels: (labels: readonly { x: number; y: number; facing: number }[]) => void;
  isStill: boolean;
}

export class GalaxyScene {
  private readonly renderer: WebGLRenderer;
  private readonly scene = new Scene();
  private readonly camera = new PerspectiveCamera(FIELD, 1, 0.1, 20);
  private readonly geometry = new BufferGeometry();
  private readonly material: ShaderMaterial;
  private readonly pulses: Pulses;
  private turn = 0.6;
  private tilt = 0.35;
  private distance = 3.2;
  private frame = 0;
  private before = 0;
  private isHeld = false;

  /** Throws where the browser has no WebGL. */
  constructor(private readonly options: SceneOptions) {
    const { canvas, places } = options;
    this.renderer = new WebGLRenderer({ canvas, antialias: true, alpha: true });
    this.material = new ShaderMaterial({
      uniforms: { scale: { value: 1 } },
      vertexShader: VERTEX,
      fragmentShader: FRAGMENT,
      transparent: true,
      depthWrite: false,
    });
    const count = places.length;
    this.geometry.setAttribute('position', new BufferAttribute(new Float32Array(places.flat()), 3));
    this.geometry.setAttribute('tint', new BufferAttribute(new Float32Array(3 * count), 3));
    this.geometry.setAttribute('size', new BufferAttribute(new Float32Array(count), 1));
    this.geometry.setAttribute('flash', new BufferAttribute(new Float32Array(count), 1));
    this.scene.add(new Points(this.geometry, this.material));
    this.pulses = new Pulses(count);
  }

  resize(width: number, height: number, ratio: number): void {
    const used = Math.min(ratio, MAX_RATIO);
    this.renderer.setPixelRatio(used);
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / Math.max(1, height);
    this.camera.updateProjectionMatrix();
    const { scale } = this.material.uniforms;
    if (scale !== undefined) scale.value = (used * Math.min(width, height)) / 190;
    this.request();
  }

  setLooks(lookOf: (index: number) => Look): void {
    const tint = this.attribute('tint');
    const size = this.attribute('size');
    for (let index = 0; index < size.count; index += 1) {
      const look = lookOf(index);
      tint.setXYZ(index, ...look.color);
      size.setX(index, look.size);
    }
    tint.needsUpdate = true;
    size.needsUpdate = true;
    this.request();
  }

  /** Let points light up; they fade by themselves. */
  flash(indices: Iterable<number>): void {
    if (this.options.isStill) return;
    this.pulses.start(indices);
    this.request();
  }

  turnBy(angle: number, tilt: number): void {
    this.turn += angle;
    this.tilt = Math.min(MAX_TILT, Math.max(-MAX_TILT, this.tilt + tilt));
    this.request();
  }

  zoomBy(factor: number): void {
    this.distance = Math.min(FARTHEST, Math.max(NEAREST, this.distance * factor));
    this.request();
  }

  /** Whether the galaxy is held, so that it does not turn by itself. */
  hold(isHeld: boolean): void {
    this.isHeld = isHeld;
    this.before = 0;
    this.request();
  }

  /** The shown point nearest to a place of the canvas, in its pixels; null if none is near. */
  pick(x: number, y: number): number | null {
    const position = this.attribute('position');
    const size = this.attribute('size');
    const seen = new Vector3();
    let best: { index: number; away: number } | null = null;
    for (let index = 0; index < position.count; index += 1) {
      if (size.getX(index) === 0) continue;
      const place = this.onCanvas(seen.fromBufferAttribute(position, index));
      // Of points at the same place the front one is meant.
      const away = Math.hypot(place.x - x, place.y - y) + 4 * place.depth;
      if (away < PICK_PX && (best === null || away < best.away)) best = { index, away };
    }
    return best?.index ?? null;
  }

  /** Where a point is on the canvas, in its pixels. */
  placeOf(index: number): { x: number; y: number } {
    return this.onCanvas(new Vector3().fromBufferAttribute(this.attribute('position'), index));
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.geometry.dispose();
    this.material.dispose();
    this.renderer.dispose();
  }

  private attribute(name: string): BufferAttribute {
    return this.geometry.getAttribute(name) as BufferAttribute; // all are made above
  }

  /** Changes `point`. */
  private onCanvas(point: Vector3): { x: number; y: number; depth: number } {
    const { clientWidth, clientHeight } = this.options.canvas;
    point.project(this.camera);
    return {
      x: ((point.x + 1) / 2) * clientWidth,
      y: ((1 - point.y) / 2) * clientHeight,
      depth: point.z,
    };
  }

  private request(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame((now) => this.draw(now));
  }

  private draw(now: number): void {
    this.frame = 0;
    const isTurning = !this.options.isStill && !this.isHeld;
    if (isTurning && this.before !== 0) this.turn += (SPIN_PER_S * (now - this.before)) / 1000;
    this.before = now;
    const flash = this.attribute('flash');
    if (!this.pulses.isIdle) {
      this.pulses.visit(now, (index, level) => flash.setX(index, level));
      flash.needsUpdate = true;
    }
    // Where the picture is narrow, its width has to hold the galaxy and the topics' names.
    const distance = this.distance * Math.max(1, NAMES / this.camera.aspect);
    const flat = distance * Math.cos(this.tilt);
    this.camera.position.set(
      flat * Math.sin(this.turn),
      distance * Math.sin(this.tilt),
      flat * Math.cos(this.turn),
    );
    this.camera.lookAt(0, 0, 0);
    this.camera.updateMatrixWorld();
    this.renderer.render(this.scene, this.camera);
    this.tellLabels();
    if (isTurning || !this.pulses.isIdle) this.request();
  }

  private tellLabels(): void {
    const { anchors, onLabels } = this.options;
    const towards = this.camera.position.clone().normalize();
    onLabels(
      anchors.map(([x, y, z]) => {
        const point = new Vector3(x, y, z).multiplyScalar(1.12);
        const facing = (point.dot(towards) / 1.12 + 1) / 2;
        return { ...this.onCanvas(point), facing };
      }),
    );
  }
}
