"""What calls take from outside, each kind with its form in the record. Imported for the first value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.json_text import dumps
from fumehood_sdk.recording import (
    HTTP,
    NOW,
    SECRET,
    SIDE_EFFECT,
    Codec,
    recording_of,
    take,
    take_async,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from fumehood_sdk.call import Call
    from fumehood_sdk.wire.recorded_values import RecordedValue


def take_now(call: Call) -> datetime:
    """See `Context.now`."""
    return take(call, NOW, "", lambda: datetime.now(UTC), _NOW)


def draw(call: Call) -> Random:
    """See `Context.random`."""
    return recording_of(call).random()


def take_side_effect(call: Call, name: str, fn: Callable[[], Any]) -> Any:  # noqa: ANN401
    """See `Context.side_effect`."""
    return json.loads(take(call, SIDE_EFFECT, name, lambda: dumps(fn()), _JSON))


async def take_side_effect_async(call: Call, name: str, fn: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """See `Context.aside_effect`."""

    async def run() -> bytes:
        return dumps(await fn())

    value_json: bytes = await take_async(call, SIDE_EFFECT, name, run, _JSON)
    return json.loads(value_json)


def take_secret(call: Call, name: str, fetch: Callable[[], bytes]) -> bytes:
    """See `Context.secret`."""
    return take(call, SECRET, name, fetch, _SECRET)


async def take_secret_async(call: Call, name: str, fetch: Callable[[], Awaitable[bytes]]) -> bytes:
    """See `Context.asecret`."""
    return await take_async(call, SECRET, name, fetch, _SECRET)


def take_http(call: Call, request: HttpRequest, send: Callable[[], HttpResponse]) -> HttpResponse:
    """See `Http.request`."""
    return take(call, HTTP, f"{request.method} {request.url}", send, _http(request))


async def take_http_async(
    call: Call, request: HttpRequest, send: Callable[[], Awaitable[HttpResponse]]
) -> HttpResponse:
    """See `Http.arequest`."""
    return await take_async(call, HTTP, f"{request.method} {request.url}", send, _http(request))


def _read_now(found: RecordedValue) -> datetime:
    return datetime.fromisoformat(json.loads(found.value_json))


def _http(request: HttpRequest) -> Codec[HttpResponse]:
    def encode(response: HttpResponse) -> str:
        fields: dict[str, Any] = {
            "status": response.status,
            "url": response.url,
            "headers": response.header_fields,
            "redirects": response.redirects,
        }
        try:
            fields["text"] = response.content.decode()
        except UnicodeDecodeError:
            from base64 import b64encode  # noqa: PLC0415 - most bodies are text

            fields["base64"] = b64encode(response.content).decode()
        if request.body:
            from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which takes longer than all the rest

            # A digest, for whoever reads the record. It isn't compared: a secret in the body has no value on replay.
            fields["request_sha256"] = sha256(request.body).hexdigest()
        return dumps(fields).decode()

    return Codec(encode, _read_response)


def _read_response(found: RecordedValue) -> HttpResponse:
    from base64 import b64decode  # noqa: PLC0415 - as above

    fields = json.loads(found.value_json)
    return HttpResponse(
        fields["status"],
        url=fields["url"],
        headers=tuple((name, value) for name, value in fields["headers"]),
        content=b64decode(fields["base64"]) if "base64" in fields else fields["text"].encode(),
        redirects=fields["redirects"],
    )


_NOW = Codec[datetime](lambda taken: f'"{taken.isoformat()}"', _read_now, leaves_process=False)
_JSON = Codec[bytes](bytes.decode, lambda found: found.value_json.encode())
_SECRET = Codec[bytes](lambda _: "", lambda found: f"[secret {found.name}]".encode())
"""By name alone. In a replay it is what stands for the secret wherever the sidecar has taken it out."""
