import { describe, expect, it } from 'vitest';
import {
  baseProblem,
  initialBase,
  isEngineServed,
  isKeyExposed,
  LOOPBACK_BASE,
  rootOf,
} from './endpoint';

const engine = { protocol: 'http:', port: '9001', origin: 'http://host:9001' };
const development = { protocol: 'http:', port: '5173', origin: 'http://localhost:5173' };

describe('endpoint', () => {
  it.each([
    ['http://h:8000/v1', 'http://h:8000'],
    ['https://h/api/v1/', 'https://h/api'],
    ['https://h/api', 'https://h/api'],
    [' http://h:8000/v1/// ', 'http://h:8000'],
  ])('has the root of %s at %s', (base, root) => {
    expect(rootOf(base)).toBe(root);
  });

  it('starts with the origin of a page that the engine served', () => {
    expect(isEngineServed(engine)).toBe(true);
    expect(initialBase(engine, null)).toBe('http://host:9001/v1');
    expect(initialBase(engine, LOOPBACK_BASE)).toBe('http://host:9001/v1');
    expect(initialBase(engine, 'https://other/v1/')).toBe('https://other/v1');
  });

  it('starts with the loopback address on the development server', () => {
    expect(isEngineServed(development)).toBe(false);
    expect(initialBase(development, null)).toBe(LOOPBACK_BASE);
  });

  it('does not start with a stored address that is none', () => {
    expect(initialBase(engine, 'ftp://x')).toBe('http://host:9001/v1');
  });

  it.each([
    ['', 'empty'],
    ['localhost:8000', 'scheme'],
    ['ftp://h', 'scheme'],
    ['http://', 'malformed'],
    ['http://h/v1', null],
  ])('says what is wrong with %j', (base, problem) => {
    expect(baseProblem(base)).toBe(problem);
  });

  it('warns of keys in clear text to other machines alone', () => {
    expect(isKeyExposed('http://192.0.2.1:8000/v1')).toBe(true);
    expect(isKeyExposed('http://127.0.0.1:8000/v1')).toBe(false);
    expect(isKeyExposed('http://localhost/v1')).toBe(false);
    expect(isKeyExposed('https://host/v1')).toBe(false);
  });
});
