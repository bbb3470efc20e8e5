"""Anthropic's own examples against Hob: see examples_told.py."""

from examples_told import TOKEN, URL, main

ORDER = '[[say {"product_name": "Green Tea", "price": 5.5, "quantity": 2}]]'

main("anthropic", {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": TOKEN}, {
    "agents.py": None,
    "fallbacks.py": None,
    "images.py": None,
    "managed-agents-streaming-deltas-manual.py": None,
    "messages.py": None,
    "messages_stream.py": None,
    "structured_outputs.py": ORDER,
    "structured_outputs_streaming.py": ORDER,
    "thinking.py": None,
    "thinking_stream.py": None,
    "tools.py": '[[tool mcp__app__get_weather {"location": "SF"}]] [[say It is warm.]]',
    "tools_runner.py": None,
    "tools_stream.py": '[[tool mcp__app__get_weather {"location": "SF"}]]',
})
