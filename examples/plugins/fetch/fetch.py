"""Reads web pages and sends requests, at hosts that the operator grants. The sidecar does the asking."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Annotated, Literal

from fumehood_sdk import Context, Field, HttpResponse, Plugin, ToolError, Transient

plugin = Plugin("fetch", version="1.0.0")

TIMEOUT_S = 15
MAX_BYTES = 1024 * 1024
MAX_REDIRECTS = 10
MAX_CHARACTERS = 200_000
SHOWN_OF_AN_ERROR = 2_000
BUSY = (429, 502, 503, 504)
"""Statuses by which a server says that the same request may work later (RFC 9110, RFC 6585)."""
READABLE = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")

UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe"})
BREAKS = frozenset(
    {"p", "div", "br", "li", "ul", "ol", "tr", "table", "section", "article", "header", "footer", "main", "pre", "hr"}
    | {f"h{level}" for level in range(1, 7)}
)


@dataclass
class Page:
    """What was found."""

    url: str
    status: int
    content_type: str
    title: str
    text: str
    total_characters: int
    next_start: int | None


@dataclass
class Answer:
    """What a server answered."""

    status: int
    url: str
    headers: dict[str, str]
    text: str


@plugin.tool(side_effects="read", idempotent=True, timeout_s=30)
def fetch(
    url: str,
    ctx: Context,
    start: Annotated[int, Field(ge=0)] = 0,
    max_characters: Annotated[int, Field(ge=1, le=MAX_CHARACTERS)] = 20_000,
    raw: bool = False,
) -> Page:
    """Fetch a web page or a text by its https URL, and return its text. Of HTML, the words without the markup.

    Only hosts that the operator granted can be reached.

    Args:
        url: The address, https alone.
        start: Where in the text to begin: `next_start` of the call before, to read on.
        max_characters: How much of the text to return.
        raw: Return HTML as it is.
    """
    if not url.lower().startswith("https://"):
        raise ToolError("only https addresses are fetched", reason="scheme_not_allowed", details={"url": url[:200]})
    response = ctx.http.get(url, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES, max_redirects=MAX_REDIRECTS)
    check_status(response)
    content_type = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    if not (content_type.startswith(READABLE) or content_type.endswith(("+json", "+xml"))):
        raise ToolError(
            f"{response.url} is {content_type}, not text",
            reason="not_text",
            details={"content_type": content_type, "size_bytes": len(response.content)},
        )
    title, text = "", response.text
    if not raw and content_type in ("text/html", "application/xhtml+xml"):
        title, text = page_text(text)
    end = start + max_characters
    return Page(
        url=response.url,
        status=response.status,
        content_type=content_type,
        title=title,
        text=text[start:end],
        total_characters=len(text),
        next_start=end if end < len(text) else None,
    )


@plugin.tool(side_effects="external", timeout_s=30)
def http_request(
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    url: str,
    ctx: Context,
    headers: dict[str, str] | None = None,
    body: str = "",
) -> Answer:
    """Send an HTTP request of any method and return the answer. It can change things elsewhere.

    Only hosts that the operator granted can be reached.

    Args:
        method: The HTTP method.
        url: The address.
        headers: Header fields to send.
        body: What to send, as text. For JSON set the header `content-type` as well.
    """
    response = ctx.http.request(
        method,
        url,
        headers=headers,
        body=body,
        timeout_s=TIMEOUT_S,
        max_bytes=MAX_BYTES,
        max_redirects=MAX_REDIRECTS,
    )
    return Answer(
        status=response.status, url=response.url, headers=response.headers, text=response.text[:MAX_CHARACTERS]
    )


def check_status(response: HttpResponse) -> None:
    """Turn an error's status into a failure that a model can act on."""
    if response.ok:
        return
    kind = Transient if response.status in BUSY else ToolError
    raise kind(
        f"{response.url} answered with status {response.status}",
        reason="http_status",
        details={"status": response.status, "text": response.text[:SHOWN_OF_AN_ERROR]},
    )


def page_text(html: str) -> tuple[str, str]:
    """Title and text of a page. Broken markup is read as far as it goes."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (re.sub(r"\s+", " ", line).strip() for line in "".join(reader.words).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return re.sub(r"\s+", " ", "".join(reader.title)).strip(), text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.title: list[str] = []
        self._unseen: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag == "title":
            self._in_title = True
        elif tag in UNSEEN:
            self._unseen.append(tag)
        elif tag in BREAKS:
            self.words.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._unseen:
            while self._unseen.pop() != tag:
                pass
        elif tag in BREAKS:
            self.words.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._unseen:
            # A line's end in the source is a space; those of the page are its tags'.
            self.words.append(data.replace("\n", " "))
