"""Keep secrets of addresses out of what is stored or shown: users and passwords, and signatures behind a '?'."""

import re

_USER = re.compile(r"\b((?:https?|ftp)://)[^/?#\s\"'<>\\]*@", re.IGNORECASE)
_SIGNED = re.compile(r"((?:[a-z][a-z0-9_]*:)?(?:https?|ftp)://[^?#]*)[?#].*", re.IGNORECASE | re.DOTALL)
# For SQL too (RE2): the user and password of one address, and one whose query signs it or lets in who has it, by the
# parameters of S3, Google, Azure and CloudFront, or as a plain token. What stands before it is group 1.
USER = r"^([a-z][a-z0-9]*://)[^/?#]*@"
SIGNED_QUERY = (
    r"^([^?#]*)\?(?:[^#]*&)?(?:x-(?:amz|goog)-[a-z-]+|awsaccesskeyid|googleaccessid|signature|sig|key-pair-id|policy|"
    r"(?:access_?|auth_?)?token|api_?key|password)=.*"
)
_NAMED = re.compile(r"\?\$\{\w+\}(?=$|[\s\"',\]])")


def without_users(text: str) -> str:
    """Cut user and password out of every web address in ``text``: no row holds them, and no fetch sends them."""
    return _USER.sub(r"\1", text) if "@" in text else text


def without_secrets(uri: str) -> str:
    """Return a source's address as rows and messages show it: on the web without user, password and query.

    A query may be a signature that is another next week, and the source is the same.
    """
    return _SIGNED.sub(r"\1", without_users(uri))


def has_secret(uri: str) -> bool:
    """Whether an address may hold a secret as it is written; ``${NAME}`` is none, it only says where one is."""
    plain = _NAMED.sub("", uri)
    return without_secrets(plain) != plain
