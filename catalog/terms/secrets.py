"""Remove secrets from addresses before they are stored or shown: users, passwords, and signatures after a '?'."""

import re

_ANY_USER = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/?#\s\"'<>\\]*@", re.IGNORECASE)
_USER = re.compile(r"\b((?:https?|ftp)://)[^/?#\s\"'<>\\]*@", re.IGNORECASE)
_SIGNED = re.compile(r"((?:[a-z][a-z0-9_]*:)?(?:https?|ftp)://[^?#]*)[?#].*", re.IGNORECASE | re.DOTALL)
# Valid in SQL too (RE2): the user and password of an address, and a query that signs the address or grants access,
# known by the parameters of S3, Google, Azure and CloudFront, or by a plain token. Group 1 is the text before it.
USER = r"^([a-z][a-z0-9]*://)[^/?#]*@"
_GRANTS = (
    r"(?:x-(?:amz|goog)-[a-z-]+|awsaccesskeyid|googleaccessid|signature|sig|key-pair-id|policy|"
    r"(?:access_?|auth_?)?token|api_?key|password)="
)
SIGNED_QUERY = rf"^([^?#]*)\?(?:[^#]*&)?{_GRANTS}.*"
_GRANT = re.compile(rf"([?&]{_GRANTS})[^&#\s\"'<>]+", re.IGNORECASE)
_NAMED = re.compile(r"\?\$\{\w+\}(?=$|[\s\"',\]])")


def without_users(text: str) -> str:
    """Return ``text`` without the user and password of every web address in it."""
    return _USER.sub(r"\1", text) if "@" in text else text


def hide_secrets(text: str) -> str:
    """Return a message without users in addresses of any scheme, and without values of queries that grant access."""
    return _GRANT.sub(r"\1…", _ANY_USER.sub(r"\1", text))


def without_secrets(uri: str) -> str:
    """Return a source's address for rows and messages: web addresses without user, password and query.

    A query may be a signature that changes every week while the source stays the same.
    """
    return _SIGNED.sub(r"\1", without_users(uri))


def has_secret(uri: str) -> bool:
    """Return whether an address contains a secret; ``${NAME}``, a reference to a variable, is none."""
    plain = _NAMED.sub("", uri)
    return without_secrets(plain) != plain
