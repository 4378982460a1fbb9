"""Sign a report by an Ed25519 key, so that anybody can check it offline by `openssl`."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pairmill.catalog.terms.error import PairmillError


def read_key(file: str) -> Ed25519PrivateKey:
    """Return the private key in a PEM file without a password. Raise PairmillError for anything else."""
    try:
        key = load_pem_private_key(Path(file).read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PairmillError(f"--sign {file}: {error}. Make a key by `openssl genpkey -algorithm ed25519`.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise PairmillError(f"--sign {file}: no Ed25519 key. Make one by `openssl genpkey -algorithm ed25519`.")
    return key


def sign(key: Ed25519PrivateKey, report: Path) -> Path:
    """Write the 64 bytes of the signature of a file (RFC 8032) beside it, as ``FILE.sig``."""
    path = report.with_name(report.name + ".sig")
    path.write_bytes(key.sign(report.read_bytes()))
    return path
