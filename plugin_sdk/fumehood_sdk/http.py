"""HTTP that the sidecar performs for a call: the process has no network. Imported when `ctx.http` is first used."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fumehood_sdk.declaration import MAX_TIMEOUT_S
from fumehood_sdk.errors import HttpFailed, HttpRefused
from fumehood_sdk.jsontext import dumps

if TYPE_CHECKING:
    from fumehood_sdk.call import Call

__all__ = ["Http", "HttpRequest", "HttpResponse"]

_NOTHING: Any = object()
_DEFAULT_CHARSET = "utf-8"
_MAX_SHOWN_BITS = 64
_MAX_BYTES = 2**63 - 1
_MAX_REDIRECTS = 2**32 - 1
"""What the wire can carry. The operator's bounds are far below."""


class HttpRequest:
    """A request as it goes to the sidecar. The `http=` of `fumehood_sdk.testing.ToolTester` gets one."""

    __slots__ = ("body", "headers", "max_bytes", "max_redirects", "method", "timeout_s", "url")

    def __init__(
        self,
        method: str,
        url: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        max_redirects: int | None = None,
    ) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.max_redirects = max_redirects

    def __repr__(self) -> str:
        return f"HttpRequest({self.method!r}, {self.url!r})"


class HttpResponse:
    """A whole response. Any status is one: 404 raises nothing."""

    __slots__ = ("content", "header_fields", "redirects", "status", "url")

    def __init__(
        self,
        status: int,
        *,
        url: str = "",
        headers: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
        content: bytes = b"",
        redirects: int = 0,
    ) -> None:
        self.status = status
        self.url = url
        """The URL that answered, after redirects."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self.header_fields = tuple((name.lower(), value) for name, value in pairs)
        """Names in lower case and values, in order; a name can stand several times."""
        self.content = content
        """The body, decoded from its content encoding."""
        self.redirects = redirects
        """How many redirects were followed."""

    def __repr__(self) -> str:
        return f"<HttpResponse {self.status} {self.url}>"

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400  # noqa: PLR2004 - RFC 9110 section 15

    @property
    def headers(self) -> dict[str, str]:
        """Values by names in lower case. Those of a name that stands several times are joined by a comma."""
        found: dict[str, str] = {}
        for name, value in self.header_fields:
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found

    @property
    def charset(self) -> str:
        """The character set that the `content-type` names, or "utf-8"."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'") or _DEFAULT_CHARSET
        return _DEFAULT_CHARSET

    @property
    def text(self) -> str:
        """The body as text. What is not of its character set becomes a replacement character."""
        try:
            return self.content.decode(self.charset, "replace")
        except LookupError:
            return self.content.decode(_DEFAULT_CHARSET, "replace")

    def json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The body, read as JSON.

        Raises:
            ValueError: it is none.
        """
        return jsonlib.loads(self.content)


class Http:
    """`ctx.http`: requests to the hosts that the operator granted. `aget`, `ahead` and `arequest` are for async tools.

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
        request = _made(
            method,
            url,
            headers=headers,
            body=body,
            json=json,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            max_redirects=max_redirects,
        )
        return self._call.grants.host().http(self._call, request)

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
        request = _made(
            method,
            url,
            headers=headers,
            body=body,
            json=json,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            max_redirects=max_redirects,
        )
        return await self._call.grants.host().http_async(self._call, request)


def problem_error(reason: str, message: str, *, retryable: bool) -> HttpRefused | HttpFailed:
    """The exception for the sidecar's word on why there is no whole response."""
    kind = HttpFailed if retryable else HttpRefused
    return kind(message or "the request was refused", reason=reason or "http_failed")


def _made(
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
        raise _no_bound("timeout_s", timeout_s, f"a number of seconds, more than 0 and at most {MAX_TIMEOUT_S:.0f}")


def _check_number(name: str, value: object, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _no_bound(name, value, f"a whole number from 0 to {most}")


def _no_bound(name: str, value: object, allowed: str) -> HttpRefused:
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        shown = f"one of {value.bit_length()} bits"  # Python refuses to write out the longest
    else:
        shown = repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"
    return HttpRefused(f"{name} is {allowed}, or None; not {shown}", reason="bound_invalid")
