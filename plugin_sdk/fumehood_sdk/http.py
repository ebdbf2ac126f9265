"""HTTP requests and responses, as `ctx.http` and the tests of plugins see them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["HttpRequest", "HttpResponse"]

_DEFAULT_CHARSET = "utf-8"


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
        return json.loads(self.content)
