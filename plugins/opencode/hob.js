// Hob for OpenCode: remembers every turn, adds the tools of `hob mcp`, and tells a new session what Hob remembers.
// `hob hooks install --client opencode` writes this file to ~/.config/opencode/plugins/, and `hob hooks uninstall
// --client opencode` removes it. To change it, copy it under another name: the first line marks it as Hob's.
import { execFile } from "node:child_process";

/** The program `hob`: its path, or its name on the PATH. */
const HOB = "hob";

/** How long OpenCode waits for Hob, in milliseconds. */
const TIMEOUT_MS = 10000;

/** Runs `hob` and returns what it prints. Returns `undefined` if there is no `hob` or if it fails. */
function hob(args, input = "") {
  return new Promise((resolve) => {
    const child = execFile(HOB, args, { timeout: TIMEOUT_MS }, (error, stdout) => {
      resolve(error ? undefined : stdout);
    });
    // A `hob` that ends early does not read its input.
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
}

/** Returns whether a message will not change any more. */
function isComplete(info) {
  return info.role !== "assistant" || Boolean(info.time?.completed || info.error);
}

/** Returns the texts of a message. Hob stores nothing else of it. */
function texts({ info, parts }) {
  return { info, parts: parts.filter((part) => part.type === "text") };
}

export const Hob = async ({ client, directory }) => {
  /** What Hob remembers, by session. */
  const remembered = new Map();
  /** The ids of the messages that Hob has got, by session. */
  const captured = new Map();
  /** The last capture. The next one waits for it. */
  let capturing = Promise.resolve();

  /** Gives Hob the messages of a session that it has not got yet. */
  async function capture(session) {
    const path = { id: session };
    const [info, messages] = await Promise.all([
      client.session.get({ path }),
      client.session.messages({ path }),
    ]);
    // The work of a sub-agent is no conversation.
    if (!info.data || !messages.data || info.data.parentID) {
      return;
    }
    const known = captured.get(session) ?? new Set();
    const isNew = ({ info }) => isComplete(info) && !known.has(info.id);
    const fresh = messages.data.filter(isNew);
    if (fresh.length === 0) {
      return;
    }
    const opencode = { info: info.data, messages: fresh.map(texts) };
    const cwd = info.data.directory ?? directory;
    const input = JSON.stringify({ session_id: session, cwd, opencode });
    if ((await hob(["capture-turn"], input)) !== undefined) {
      captured.set(session, new Set([...known, ...fresh.map(({ info }) => info.id)]));
    }
  }

  function captureNext(session) {
    capturing = capturing.then(() => capture(session)).catch(() => {});
    return capturing;
  }

  return {
    config: async (config) => {
      config.mcp ??= {};
      config.mcp.hob ??= { type: "local", command: [HOB, "mcp"], enabled: true };
    },
    event: async ({ event }) => {
      if (event.type === "session.deleted") {
        remembered.delete(event.properties.info.id);
        captured.delete(event.properties.info.id);
      } else if (event.type === "session.idle") {
        await captureNext(event.properties.sessionID);
      } else if (event.type === "message.updated") {
        const { info } = event.properties;
        // `opencode run` ends as soon as the session is idle, which may be too early for a capture.
        if (info.role === "assistant" && isComplete(info)) {
          await captureNext(info.sessionID);
        }
      }
    },
    "experimental.chat.system.transform": async (input, output) => {
      const session = input.sessionID ?? "";
      if (!remembered.has(session)) {
        const own = session === "" ? [] : ["--session-id", session];
        remembered.set(session, hob(["session-start", "--cwd", directory, ...own]));
      }
      const text = (await remembered.get(session)) ?? "";
      if (text.trim() !== "") {
        output.system.push(text);
      }
    },
  };
};
