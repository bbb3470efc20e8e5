// Hob for OpenCode: the tools of `hob mcp`, and what Hob remembers about the project at the start of a session.
// Copy this file to ~/.config/opencode/plugins/ (all projects) or .opencode/plugins/ (one project).
import { execFile } from "node:child_process";

/** How long OpenCode waits for Hob, in milliseconds. */
const TIMEOUT_MS = 3000;

/** Runs `hob` and returns what it prints. Returns nothing if there is no `hob` or if it fails. */
function hob(args) {
  return new Promise((resolve) => {
    const child = execFile("hob", args, { timeout: TIMEOUT_MS }, (error, stdout) => {
      resolve(error ? "" : stdout);
    });
    child.stdin?.end();
  });
}

export const Hob = async ({ directory }) => {
  /** What Hob remembers, by session. */
  const remembered = new Map();
  return {
    config: async (config) => {
      config.mcp ??= {};
      config.mcp.hob ??= { type: "local", command: ["hob", "mcp"], enabled: true };
    },
    event: async ({ event }) => {
      if (event.type === "session.deleted") {
        remembered.delete(event.properties.info.id);
      }
    },
    "experimental.chat.system.transform": async (input, output) => {
      const session = input.sessionID ?? "";
      if (!remembered.has(session)) {
        const own = session === "" ? [] : ["--session-id", session];
        remembered.set(session, hob(["session-start", "--cwd", directory, ...own]));
      }
      const text = await remembered.get(session);
      if (text.trim() !== "") {
        output.system.push(text);
      }
    },
  };
};
