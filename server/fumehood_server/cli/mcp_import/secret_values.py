"""Recognition of secrets among variables and arguments, by their names and by the forms that issuers give tokens."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_NAME = re.compile(
    r"(?:^|[_.-])(?:api_?-?key|key|token|secret|passw(?:or)?d|passphrase|pass|pwd|pat|credentials?|bearer|auth"
    r"|cookie|session|private_?key|access_?key|client_?secret|dsn|connection_?string)(?:[_.-]?\d*)$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HARMLESS = re.compile(r"(?:^|[_.-])(?:public_?key|key_?(?:id|file|path|name))$", re.IGNORECASE)
_WORKING_FOLDERS = {"PWD", "OLDPWD"}
"""Variables of every shell (POSIX, `cd`)."""
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|sk_test_|rk_live_|pk_live_|xox[abeoprs]-|xapp-|AIza|ya29\.|AKIA"
    r"|ASIA|npm_|sbp_|pypi-|hf_|ntn_|secret_|lin_api_|shpat_|SG\.|dop_v1_|figd_|tvly-|BSA|sntrys_|eyJ[A-Za-z0-9_-]+\.eyJ)"
    r"[A-Za-z0-9_.\-]{8,}",
)
_HEADER = re.compile(r"(?:Bearer|Basic|token)\s+\S{8,}", re.IGNORECASE)
_PEM = "-----BEGIN "
_PATH_BEGINNINGS = ("/", "./", "../", "~/")
_SWITCHES = {"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"}
_MOSTLY_RANDOM = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_NAME_PART = re.compile(
    r"(?:[A-Z]?[a-z]{2,}|[A-Z][a-z]{2,}[A-Z]{2}|[A-Z]{2,5}|[A-Z][a-z]{2,}(?:[A-Z][a-z]{2,})+)\d{0,2}"
    r"|[A-Za-z]\d{1,2}|\d{1,4}[A-Za-z]?|\d{1,2}x\d{1,2}[A-Za-z]"
)
"""A word, an acronym, a version or a size: of random text of some length next to nothing is made of these alone."""
_PART_ENDS = re.compile(r"[/._-]")
_KINDS_OF_CHARACTER = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))


def named_like_a_secret(name: str) -> bool:
    """Whether a variable or option of this name usually holds a secret."""
    if name in _WORKING_FOLDERS:
        return False
    plain = _CAMEL.sub("_", name.lstrip("-"))
    return bool(_NAME.search(plain)) and not _HARMLESS.search(plain)


def formed_like_a_secret(value: str) -> bool:
    """Whether a value has the form of a token, a password in a URL, a private key, or a long random text."""
    is_path = value.startswith(_PATH_BEGINNINGS)  # whose names may be `secret_documents` or `sk-notebooks`
    if (_FORMS.search(value) and not is_path) or _HEADER.fullmatch(value) or _PEM in value:
        return True
    if "://" in value:
        return _has_password(value)
    if _is_name(value):
        return False
    # A digest in hexadecimal names a public thing as often as not; a path or a word has fewer kinds of character.
    return bool(_MOSTLY_RANDOM.fullmatch(value)) and all(each.search(value) for each in _KINDS_OF_CHARACTER)


def looks_like_a_secret(name: str, value: str) -> bool:
    """Whether a variable's value is to be kept as a secret."""
    if value.lower() in _SWITCHES:
        return False
    return named_like_a_secret(name) or formed_like_a_secret(value)


def secret_argument(arguments: tuple[str, ...]) -> int | None:
    """The index of an argument that looks like a secret, by its form or by the option that it belongs to."""
    for index, text in enumerate(arguments):
        option, equals, value = text.partition("=") if text.startswith("-") else ("", "", text)
        if formed_like_a_secret(value if equals else text):
            return index
        if equals and named_like_a_secret(option) and value.lower() not in _SWITCHES:
            return index
        before = arguments[index - 1] if index else ""
        follows = before.startswith("-") and "=" not in before and named_like_a_secret(before)
        if follows and not text.startswith("-") and text.lower() not in _SWITCHES:
            return index
    return None


def _is_name(value: str) -> bool:
    """Whether it is of the form OWNER/NAME, in parts that read like those of a model or a package.

    Without the slash it isn't: a passphrase is of words as well.
    """
    return value.count("/") == 1 and all(map(_NAME_PART.fullmatch, _PART_ENDS.split(value)))


def _has_password(value: str) -> bool:
    try:
        split = urlsplit(value)
        return bool(split.password) or any(
            named_like_a_secret(pair.partition("=")[0]) and len(pair.partition("=")[2]) > len("changeme")
            for pair in split.query.split("&")
        )
    except ValueError:
        return False
