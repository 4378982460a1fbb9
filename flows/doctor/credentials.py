"""Check which credentials are present. No value of any is read into a finding."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pairmill.catalog.lake.location import locate
from pairmill.flows.machine.finding import Finding, Patient

KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
OTHERS = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
          "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip


def credentials(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for S3 and one for the hub of models."""
    location = locate(patient.lake)
    yield s3_credentials(os.environ, Path.home(), location.on_s3)
    yield hub_token(os.environ)
    if location.on_postgres:
        files = [os.environ.get("PGPASSFILE") or str(Path.home() / ".pgpass")]
        has_password = "PGPASSWORD" in os.environ or any(Path(file).is_file() for file in files)
        yield Finding(
            "ok", f"Postgres: {'a password is set' if has_password else 'no password, which a server may want'}"
        )


def s3_credentials(environment: Mapping[str, str], home: Path, needed: bool) -> Finding:
    """Return whether there are keys for S3; a lake on S3 needs them in variables."""
    has_key, has_secret = bool(environment.get(KEY)), bool(environment.get(SECRET))
    if has_key != has_secret:
        there, missing = (KEY, SECRET) if has_key else (SECRET, KEY)
        return Finding("fail" if needed else "warn", f"S3: {there} is set, {missing} is not", f"set {missing} too")
    if has_key:
        return Finding("ok", f"S3: {KEY} and {SECRET} are set")
    if needed:
        return Finding("fail", "S3: no keys, and the lake is there", f"set {KEY} and {SECRET}")
    if name := next((name for name in OTHERS if environment.get(name)), None):
        return Finding("ok", f"S3: {name} is set")
    file = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    if file.is_file():
        return Finding("ok", f"S3: keys in {file}")
    return Finding("ok", "S3: no keys; only s3:// needs them")


def hub_token(environment: Mapping[str, str]) -> Finding:
    """Return whether there is a token for the hub of models."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    if name := next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if environment.get(name)), None):
        return Finding("ok", f"Hugging Face: {name} is set")
    if Path(HF_TOKEN_PATH).is_file():
        return Finding("ok", f"Hugging Face: a token in {HF_TOKEN_PATH}")
    return Finding("ok", "Hugging Face: no token; only gated models need it")
