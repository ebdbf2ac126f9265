"""`ctx.http`: HTTP that the sidecar performs for a call, whose process has no network. Imported at its first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood_sdk.call import MAX_TIMEOUT_S, Call
from fumehood_sdk.errors import HttpRefused
from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.json_text import dumps
from fumehood_sdk.outside_values import take_http, take_http_async

_NOTHING: Any = object()
_MAX_SHOWN_BITS = 64
_MAX_BYTES = 2**63 - 1
_MAX_REDIRECTS = 2**32 - 1
"""What the wire can carry. The operator's bounds are far below."""


class Http:
    """HTTP client for the hosts that the operator granted. `aget`, `ahead` and `arequest` are for async tools.

    At levels "read" and "write" GET and HEAD are allowed, at "external" any method. Redirects are followed, each held
    to the same rules. Bounds that are None are the operator's, which hold in any case, as does the call's deadline.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Perform a GET; see `request`."""
        return self.request(
            "GET", url, headers=headers, timeout_s=timeout_s, max_bytes=max_bytes, max_redirects=max_redirects
        )

    def head(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Perform a HEAD; see `request`."""
        return self.request("HEAD", url, headers=headers, timeout_s=timeout_s, max_redirects=max_redirects)

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        json: Any = _NOTHING,  # noqa: ANN401 - anything that JSON can hold
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Perform a request and wait for the whole response.

        Args:
            method: Such as "POST".
            url: An absolute URL, https or http.
            headers: Fields to send. Those of the connection itself, `Host` among them, are the sidecar's.
            body: What to send; text as UTF-8.
            json: What to send as JSON, in place of `body`; sets `content-type` unless `headers` does.
            timeout_s: The longest that it may take, redirects and body included: more than 0, at most 3,600.
            max_bytes: The longest body, after decoding. A longer one raises `HttpRefused`, "response_too_large".
            max_redirects: How many redirects to follow. 0 returns the redirect itself.

        Raises:
            HttpRefused: it is not allowed, or can't work as it is; "bound_invalid" where a bound is none.
            HttpFailed: it did not work, and may later.
            Cancelled: the call was told to end.
            RuntimeError: this is an event loop's thread: await `arequest`.
        """
        request = _checked_request(
            method,
            url,
            headers=headers,
            body=body,
            json=json,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            max_redirects=max_redirects,
        )
        call = self._call
        return take_http(call, request, lambda: call.grants.sidecar().send_http(call, request))

    async def aget(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Perform a GET; see `arequest`."""
        return await self.arequest(
            "GET", url, headers=headers, timeout_s=timeout_s, max_bytes=max_bytes, max_redirects=max_redirects
        )

    async def ahead(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Perform a HEAD; see `arequest`."""
        return await self.arequest("HEAD", url, headers=headers, timeout_s=timeout_s, max_redirects=max_redirects)

    async def arequest(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        json: Any = _NOTHING,  # noqa: ANN401 - anything that JSON can hold
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        max_redirects: int | None = None,
    ) -> HttpResponse:
        """Like `request`, for asynchronous tools. Cancelling it leaves nothing behind."""
        request = _checked_request(
            method,
            url,
            headers=headers,
            body=body,
            json=json,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            max_redirects=max_redirects,
        )
        call = self._call
        return await take_http_async(call, request, lambda: call.grants.sidecar().send_http_async(call, request))


def _checked_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None,
    body: bytes | str,
    json: Any,  # noqa: ANN401 - anything that JSON can hold
    timeout_s: float | None,
    max_bytes: int | None,
    max_redirects: int | None,
) -> HttpRequest:
    fields = tuple((str(name), str(value)) for name, value in (headers or {}).items())
    data = body.encode() if isinstance(body, str) else bytes(body)
    if json is not _NOTHING:
        if data:
            raise ValueError("a request has a body or json, not both")
        data = dumps(json)
        if not any(name.lower() == "content-type" for name, _ in fields):
            fields += (("content-type", "application/json"),)
    _check_timeout(timeout_s)
    _check_number("max_bytes", max_bytes, _MAX_BYTES)
    _check_number("max_redirects", max_redirects, _MAX_REDIRECTS)
    return HttpRequest(
        method,
        url,
        headers=fields,
        body=data,
        timeout_s=timeout_s,
        max_bytes=max_bytes,
        max_redirects=max_redirects,
    )


def _check_timeout(timeout_s: object) -> None:
    if timeout_s is None:
        return
    # A NaN compares as false, and an int of any size compares with a float.
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise _bound_error("timeout_s", timeout_s, f"a number of seconds, more than 0 and at most {MAX_TIMEOUT_S:.0f}")


def _check_number(name: str, value: object, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _bound_error(name, value, f"a whole number from 0 to {most}")


def _bound_error(name: str, value: object, allowed: str) -> HttpRefused:
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        shown = f"one of {value.bit_length()} bits"  # Python refuses to write out the longest
    else:
        shown = repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"
    return HttpRefused(f"{name} is {allowed}, or None; not {shown}", reason="bound_invalid")
