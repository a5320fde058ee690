"""Conversations that chat templates are tried with: (messages, tools, arguments) by name."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city, <now> & \"later\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Sucht überall: 日本 🙂",
        "parameters": {
            "type": "object",
            "properties": {
                "queries": {"type": "array", "items": {"type": "string"}},
                "filter": {"type": "object", "properties": {"from": {"type": ["string", "null"]}, "deep": {"type": "object", "properties": {"x": {"type": "number"}}}}},
                "exact": {"type": "boolean", "default": False},
                "rank": {"anyOf": [{"type": "number"}, {"type": "string"}]},
            },
        },
        "return": {"type": "string"},
    },
}
EMPTY = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, name="get_weather", number=1):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": name, "content": content}


ASKED = [user("Weather in Köln?"), assistant("", tool_calls=[call("get_weather", {"city": "Köln", "days": 2})])]

CONVERSATIONS = {
    "one question": ([user("Hello!")], None, {}),
    "system": ([system("You are terse."), user("Hello!")], None, {}),
    "several turns": ([user("One"), assistant("1"), user("Two"), assistant("2"), user("Three")], None, {}),
    "system and turns": ([system("S"), user("a"), assistant("b"), user("c"), assistant("d")], None, {}),
    "empty texts": ([system(""), user(""), assistant(""), user("")], None, {}),
    "white space": ([system("  S \n"), user("\n\n a \t"), assistant(" b\n\n"), user("\u3000c\u00a0 \x1c")], None, {}),
    "unicode": ([user("Größe 日本語 🙂 e\u0301 \u200b\u202e \U0001f468\u200d\U0001f469"), assistant("Привет, мир"), user("مرحبا")], None, {}),
    "control tokens": ([user("<|im_end|>\n<|im_start|>system\nx<|eot_id|><|end|></s>[/INST]{{ x }}{% if %}"), assistant("<|endoftext|>"), user("<think>a</think>b")], None, {}),
    "parts": ([user([{"type": "text", "text": "It's "}, {"type": "text", "text": '"quoted"\n日本'}])], None, {}),
    "parts everywhere": ([system([{"type": "text", "text": "S"}]), user([{"type": "text", "text": "a"}]), assistant([{"type": "text", "text": "b"}]), user("c")], None, {}),
    "tools": ([user("Weather?")], [WEATHER], {}),
    "system and tools": ([system("Use tools."), user("Weather?")], [WEATHER, SEARCH, EMPTY], {}),
    "empty tools": ([user("Weather?")], [], {}),
    "tool call": (ASKED, [WEATHER], {}),
    "tool call as text": ([user("Weather?"), assistant("", tool_calls=[call("get_weather", '{"city": "Köln", "days": 2}')])], [WEATHER], {}),
    "tool result": ([*ASKED, tool('{"celsius": 5.0}')], [WEATHER], {}),
    "answer after a tool": ([*ASKED, tool("5 °C <|im_end|>"), assistant("It is 5 °C."), user("And now?")], [WEATHER], {}),
    "two tool calls": (
        [user("Both?"), assistant("I look.", tool_calls=[call("get_weather", {"city": "a"}), call("search", {"queries": ["x", "y"], "exact": True, "rank": 1.5, "filter": {"from": None}}, 2)]),
         tool("1"), tool("2", "search", 2), assistant("Done.")], [WEATHER, SEARCH], {},
    ),
    "plain tool": ([user("Weather please"), assistant("", tool_calls=[call("get_weather", {"city": "a"})]), tool("Sunny, 20 degrees"), assistant("Nice.")], [WEATHER], {}),
    "result as an object": ([*ASKED, tool({"celsius": 5, "wind": [1, None]})], [WEATHER], {}),
    "call without content": ([user("Now?"), {"role": "assistant", "content": None, "tool_calls": [call("now", {})]}, tool("12:00", "now")], [EMPTY], {}),
    "tool call without tools": (ASKED + [tool("x"), assistant("y")], None, {}),
    "thinking on": ([user("Hard?")], None, {"enable_thinking": True}),
    "thinking off": ([user("Hard?")], None, {"enable_thinking": False}),
    "thoughts": ([user("q"), assistant("a", reasoning_content="One.\n\nTwo."), user("q2"), assistant("b", reasoning_content="Three.")], None, {}),
    "thoughts in the text": ([user("q"), assistant("<think>\nhm\n</think>\n\na"), user("q2"), assistant("<think></think>b")], None, {}),
    "thoughts and tools": ([user("q"), assistant("", reasoning_content="I need it.", tool_calls=[call("now", {})]), tool("12:00", "now"), assistant("Noon.", reasoning_content="So.")], [EMPTY], {}),
    "effort": ([system("S"), user("q")], None, {"reasoning_effort": "high", "model_identity": "You are a test."}),
    "developer": ([{"role": "developer", "content": "Be kind."}, user("q"), assistant("a")], None, {}),
    "other arguments": ([system("/no_think S"), user("q"), assistant("a"), user("r")], [WEATHER], {"custom_tools": [SEARCH], "date_string": "1 May 2025", "tools_in_user_message": False, "xml_tools": [WEATHER], "builtin_tools": ["python", "browser"]}),
    "system late": ([user("a"), system("S"), user("b")], None, {}),
    "two users": ([user("a"), user("b"), assistant("c"), assistant("d")], None, {}),
}  # fmt: skip
