"""Two sessions of the real Claude Code in a bare root: the second one recalls what the user said in the first one.

A scripted model API answers in place of a model, so nothing leaves the machine.
"""
import http.server
import json
import shutil
import subprocess
import threading
import uuid

from bare_root import wait_until

HOME = "/home/agent"
FACT = "The tide gauge of the harbour is wired to pin 17."
QUESTION = "Which pin is the tide gauge wired to?"
TOOL = "mcp__hob__memory_recall"


def check(root, claude, hob, environment):
    """Sets Hob up for a new user, runs both sessions, and takes everything back."""
    root.lend_program(claude, "/usr/bin/claude")
    for shell in ("/bin/sh", "/usr/bin/sh"):
        if not root.path(shell).exists():
            root.lend_program(shutil.which("sh"), shell)
    root.path(f"{HOME}/.claude").mkdir(parents=True)
    seen = []
    path = environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    environment = environment | {
        "HOME": HOME, "PATH": path,
        "ANTHROPIC_BASE_URL": model_api(seen), "ANTHROPIC_API_KEY": "sk-ant-scripted-0123456789",
        "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1",
    }
    root.run(hob, "setup", "--yes", environment=environment)
    server = root.start(hob, "serve", "--listen", "127.0.0.1:0", environment=environment, stdout=subprocess.DEVNULL)
    wait_until("the server has a socket", lambda: root.path(f"{HOME}/.hob/hob.sock").exists())
    root.run("claude", "--print", FACT, environment=environment)
    answer = root.run("claude", "--print", "--allowedTools", TOOL, "--", QUESTION, environment=environment)
    assert "pin 17" in answer, f"the second session did not recall: {answer}"
    starts = [json.dumps(messages) for messages in seen if QUESTION in json.dumps(messages)]
    assert starts and "pin 17" in starts[0], "the second session began without the memory of the first"

    root.run(hob, "setup", "--undo", "--yes", environment=environment)
    for name in (".claude/settings.json", ".claude.json"):
        file = root.path(f"{HOME}/{name}")
        text = file.read_text() if file.exists() else ""
        assert "capture-turn" not in text and '"hob"' not in text, f"{name} still names Hob: {text}"
    server.terminate()
    assert server.wait(timeout=30) == 0, f"hob serve ended with {server.returncode}"
    shutil.rmtree(root.path(HOME))
    # Claude Code leaves these.
    for folder in ("cc-socks", "claude-0"):
        shutil.rmtree(root.path(f"tmp/{folder}"), ignore_errors=True)


def model_api(seen):
    """Starts the API. It notes the messages of every request that has tools in `seen`. Returns its address."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if request.get("tools"):
                seen.append(request["messages"])
            block, reason = reply(request)
            message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant",
                       "model": request.get("model"), "content": [block], "stop_reason": reason,
                       "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
            data, kind = json.dumps(message), "application/json"
            if request.get("stream"):
                lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(message)]
                data, kind = "".join(lines), "text/event-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data.encode())))
            self.end_headers()
            self.wfile.write(data.encode())

        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def reply(request):
    """Returns the answer to the newest message: a recall to the question, and its result as text."""
    messages = request.get("messages") or [{"content": ""}]
    content = messages[-1]["content"]
    results = [block for block in content if block.get("type") == "tool_result"] if isinstance(content, list) else []
    if results:
        return {"type": "text", "text": f"I recall: {json.dumps(results[0]['content'])}"}, "end_turn"
    if request.get("tools") and QUESTION in json.dumps(messages):
        call = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": TOOL, "input": {"cue": QUESTION}}
        return call, "tool_use"
    return {"type": "text", "text": "Noted."}, "end_turn"


def events(message):
    """Returns a message as the events of a stream."""
    block = message["content"][0]
    if block["type"] == "text":
        start, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        start, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
         "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
