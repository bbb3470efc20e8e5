// Prints what Hob remembers about the project as the JSON that Gemini CLI expects of a hook. Prints nothing on trouble.
import { spawnSync } from "node:child_process";

const { status, stdout } = spawnSync("hob", ["session-start"], {
  stdio: ["inherit", "pipe", "ignore"],
  encoding: "utf8",
  timeout: 5000,
});
if (status === 0 && stdout.trim() !== "") {
  const hookSpecificOutput = { hookEventName: "SessionStart", additionalContext: stdout };
  process.stdout.write(JSON.stringify({ hookSpecificOutput }));
}
