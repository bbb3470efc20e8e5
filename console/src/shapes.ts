// What the server answers.

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cached_read_tokens: number;
  cached_write_tokens: number;
  cost_usd: number;
}

export interface Me {
  version: string;
  expires_at: string | null;
  started_at: string;
  agents: Agent[];
  default_agent?: string;
}

export interface Agent {
  name: string;
  driver: string;
  installed?: boolean | null;
}

export interface Overview {
  version: string;
  started_at: string;
  sessions: { open: number; busy: number; waiting: number };
  live: { used: number; limit: number };
  pool?: { busy: number; idle: number; warm: number; seeded: number; fresh: number } | null;
  turns?: Record<string, number>;
  memory?: { turns: number; backlog_files: number; backlog_events: number } | null;
}

export interface Live {
  id: string;
  kind: 'session' | 'backend';
  session_id: string | null;
  app: string;
  agent: string;
  cwd: string;
  pid: number | null;
  terminal: boolean;
  cols: number;
  rows: number;
  busy: boolean;
  waiting?: boolean;
  turns: number;
  since: string;
  last_at: string | null;
  cost_usd: number | null;
  tokens: number | null;
  viewers: number;
  writer: boolean;
}

export interface Session {
  session_id: string;
  app: string;
  agent: string;
  meta: Record<string, unknown>;
  cwd: string;
  model: string | null;
  permissions: 'deny' | 'ask' | 'allow';
  created_at: string;
  closed_at: string | null;
  turn_count: number;
  last_turn_at: string | null;
  state: 'idle' | 'running' | 'closed';
  waiting?: boolean;
  last_event_id: number;
  usage: Usage;
}

export interface Turn {
  turn_index: number;
  state: string;
  prompt: string;
  stop_reason: string | null;
  error: string | null;
  queued_at: string;
  started_at: string | null;
  ended_at: string | null;
  usage: Usage;
}

/** An event of a session's log; the audit's have more fields. */
export interface LogEvent {
  seq: number;
  at?: string;
  event: string;
  turn_index?: number | null;
  message?: unknown;
  [field: string]: unknown;
}

export interface Hit {
  record_id: string;
  text: string;
  role: string;
  session_id: string;
  project: string | null;
  client: string | null;
  ts: string;
  score?: number;
  reason?: string;
  superseded?: boolean;
  masked?: boolean;
  /** The app whose memory has it; without one it is the owner's. */
  app?: string;
}

export interface Found {
  hits: Hit[];
  omitted: number;
  partial: boolean;
  took_ms: number;
}

export interface MemoryStats {
  turns: number;
  sessions: number;
  projects: number;
  sealed: number;
  superseded: number;
  forgotten: number;
  last_ts?: string | null;
  backlog: { files: number; bytes: number; failed: number };
  health: string;
}

export interface Facets {
  projects: { name: string; turns: number; last?: string | null }[];
  clients: { name: string; turns: number }[];
}

export interface App {
  app: string;
  created_at: string;
  sessions_open?: number;
  turns_today?: number;
  tokens_today?: number;
  cost_today?: number;
}

export interface UsageDay {
  day: string;
  app: string;
  turns: number;
  failed: number;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number;
}

export interface Check {
  name: string;
  status: 'ok' | 'warn' | 'fail';
  text: string;
  fix: string | null;
}

export interface Setting {
  key: string;
  value: unknown;
  source: string;
}

export interface Audit {
  id: number;
  at: string;
  action: string;
  target: string | null;
  detail: unknown;
}
