"""An MCP server of the standard library alone, as the conformance suite wants it.

Its tools ask their client, and it has a resource and a prompt.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

OBJECT = {"type": "object", "properties": {}}
TEXT = {"type": "string"}
WAIT_S = 30.0

lock = threading.Lock()
waiting: dict[str, threading.Event] = {}
answers: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def elicit(number: object, message: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """What the client answers."""
    key = f"{number}-{message}"
    waiting[key] = threading.Event()
    schema = {"type": "object", "properties": properties, "required": required}
    send({"id": key, "method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
    if not waiting[key].wait(WAIT_S):
        raise TimeoutError(message)
    found: dict[str, Any] = answers[key]["result"]
    return found


def test_elicitation(number: object, message: str) -> str:
    fields = {
        "username": {**TEXT, "description": "User's response"},
        "email": {**TEXT, "description": "User's email address"},
    }
    answer = elicit(number, message, fields, ["username", "email"])
    return f"User response: action: {answer['action']}, content: {json.dumps(answer.get('content'))}"


def test_elicitation_sep1034_defaults(number: object) -> str:
    fields = {
        "name": {**TEXT, "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {**TEXT, "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return completed(elicit(number, "Take or change these.", fields, []))


def test_elicitation_sep1330_enums(number: object) -> str:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{index}", "title": title} for index, title in enumerate(("First", "Second", "Third"), 1)]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    fields = {
        "untitledSingle": {**TEXT, "enum": plain},
        "titledSingle": {**TEXT, "oneOf": titled},
        "legacyEnum": {**TEXT, **legacy},
        "untitledMulti": {"type": "array", "items": {**TEXT, "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return completed(elicit(number, "Choose.", fields, []))


def test_streaming_elicitation(number: object) -> str:
    return completed(elicit(number, "Go on?", {"ok": {"type": "boolean"}}, ["ok"]))


def test_input_required_result_request_state(number: object) -> str:
    elicit(number, "Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
    return "state-ok"


def test_input_required_result_multi_round(number: object) -> str:
    name = elicit(number, "Step 1: What is your name?", {"name": TEXT}, ["name"])
    color = elicit(number, "Step 2: What is your favorite color?", {"color": TEXT}, ["color"])
    return f"{name.get('content')} {color.get('content')}"


def completed(answer: dict[str, Any]) -> str:
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"


TOOLS: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_streaming_elicitation,
        test_input_required_result_request_state,
        test_input_required_result_multi_round,
    )
}


def listed(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"message": TEXT}} if name == "test_elicitation" else OBJECT
    return {"name": name, "description": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}}


URI = "test://static-text"
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    "serverInfo": {"name": "asking", "version": "1"},
}
RESOURCE = {"uri": URI, "name": "static-text", "description": "A text.", "mimeType": "text/plain"}
PROMPT = {"name": "test_simple_prompt", "description": "A prompt."}
SAID = {"role": "user", "content": {"type": "text", "text": "This is a simple prompt for testing."}}
RESULTS: dict[tuple[str, object], dict[str, Any]] = {
    ("initialize", None): ABOUT,
    ("tools/list", None): {"tools": [listed(name) for name in TOOLS]},
    ("resources/list", None): {"resources": [RESOURCE]},
    ("resources/templates/list", None): {"resourceTemplates": []},
    ("resources/read", URI): {"contents": [{"uri": URI, "mimeType": "text/plain", "text": "A static text."}]},
    ("prompts/list", None): {"prompts": [PROMPT]},
    ("prompts/get", PROMPT["name"]): {"messages": [SAID]},
}


def answer(message: dict[str, Any]) -> None:
    number, method, params = message["id"], message["method"], message.get("params") or {}
    result = RESULTS.get((method, params.get("uri", params.get("name"))))
    if method == "tools/call":
        try:
            text, failed = TOOLS[params["name"]](number, **(params.get("arguments") or {})), False
        except (KeyError, TimeoutError) as error:
            text, failed = f"nobody answers: {error}", True
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
    if result is None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})
    else:
        send({"id": number, "result": result})


for line in sys.stdin:
    read = json.loads(line)
    if "method" not in read and read.get("id") in waiting:
        answers[read["id"]] = read
        waiting[read["id"]].set()
    elif "id" in read and "method" in read:
        threading.Thread(target=answer, args=(read,), daemon=True).start()
