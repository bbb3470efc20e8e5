"""OpenAI's own examples against Hob: see examples_told.py."""

from examples_told import MATHS, QUERY, TOKEN, URL, main

main("openai", {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": TOKEN}, {
    "async_demo.py": None,
    "demo.py": None,
    "httpx2_client.py": None,
    "parsing.py": MATHS,
    "parsing_stream.py": MATHS,
    "parsing_tools.py": QUERY,
    "parsing_tools_stream.py": None,
    "responses/background.py": None,
    "responses/background_async.py": None,
    "responses/background_streaming.py": MATHS,
    "responses/background_streaming_async.py": MATHS,
    "responses/streaming.py": MATHS,
    "responses/streaming_tools.py": None,
    "responses/structured_outputs.py": MATHS,
    "responses/structured_outputs_tools.py": QUERY,
    "responses_input_tokens.py": None,
    "streaming.py": None,
})
