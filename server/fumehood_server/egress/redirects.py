"""HTTP redirects: the request that a 3xx response asks for (RFC 9110 section 15.4)."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.egress.errors import EgressRefusedError, Reason
from fumehood_server.egress.exchange import CheckedRequest, ResponseHead
from fumehood_server.egress.headers import bodiless_headers, cross_origin_headers
from fumehood_server.egress.url import join_url

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_BECOME_GET = frozenset({301, 302})


def next_request(request: CheckedRequest, head: ResponseHead) -> CheckedRequest | None:
    """The request that a response asks for, or None if it is no redirect. Method and host are not checked yet.

    Methods change as RFC 9110 section 15.4 has it: 303 turns all but HEAD into GET, 301 and 302 turn POST into GET,
    307 and 308 change nothing. A GET takes no body along. Another origin gets no credentials: see
    `headers.cross_origin_headers`.

    Raises:
        EgressRefusedError: `REDIRECT_INVALID`, `REDIRECT_DOWNGRADE`, or what `parse_url` says of the new URL.
    """
    locations = [value for name, value in head.headers if name == "location"]
    if head.status not in _REDIRECTS or not locations:
        return None
    if len(locations) > 1:
        raise EgressRefusedError(Reason.REDIRECT_INVALID, "the redirect names more than one location")
    try:
        url = join_url(request.url, locations[0])
    except EgressRefusedError as error:
        reason = Reason.REDIRECT_INVALID if error.reason is Reason.URL_INVALID else error.reason
        raise EgressRefusedError(reason, f"the redirect from {request.url.host}: {error.message}") from error
    if request.url.scheme == "https" and url.scheme == "http":
        raise EgressRefusedError(Reason.REDIRECT_DOWNGRADE, f"the redirect leads from https to http://{url.authority}")
    following = replace(request, url=url)
    see_other = head.status == _SEE_OTHER and request.method != "HEAD"
    if see_other or (head.status in _BECOME_GET and request.method == "POST"):
        following = replace(following, method="GET", body=b"", headers=bodiless_headers(request.headers))
    if url.origin != request.url.origin:
        following = replace(following, headers=cross_origin_headers(following.headers))
    return following
