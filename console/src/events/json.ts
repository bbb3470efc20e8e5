// JSON of unknown shape: a value of another type is empty.
export type Json = Record<string, unknown>;

export const object = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
export const array = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
export const string = (value: unknown): string => (typeof value === 'string' ? value : '');
export const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);
