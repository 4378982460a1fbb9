"""Copy a model's folder from S3 to the cache that all processes of a machine share.

A copy is complete or absent. Its folder name is a hash of the names, sizes and etags of the objects, so that a replaced
model is copied again, beside the former one. Copies stay until a user deletes them, as the hub's do.
"""

import hashlib
import os
import shutil
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path, PurePosixPath

from pairmill.catalog.terms.whole_file import alone, cache_home
from pairmill.ops.models.model_error import ModelError

S3 = "s3://"


@cache
def s3_folder(spec: str, uri: str, patterns: tuple[str, ...]) -> Path:
    """Copy the files below ``uri`` whose names match ``patterns`` to the cache, if they are missing; return the folder.

    A process lists the folder once. Of several processes one copies, and the others wait for it. Raises ModelError if
    the folder is missing or empty, S3 or the disk refuses, or the model changed during the copy.
    """
    # s3fs takes 0.5 s, which a model of this machine need not pay.
    from pairmill.ops.read.places.s3 import UNREACHABLE, again, filesystem

    copy, files = list_folder(spec, uri, patterns)
    unfinished = copy.with_suffix(".unfinished")
    with alone(copy.with_suffix(".lock")):
        if copy.is_dir():
            return copy
        try:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            for key, name in files.items():
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                again(partial(filesystem().get_file, key, str(unfinished / name)))
            if list_folder(spec, uri, patterns)[0] != copy:
                raise ModelError(f"model '{spec}': it changed while it was copied; run again")
            os.sync()  # or a power cut after the rename would leave empty files that count as a copy
            unfinished.rename(copy)
        except UNREACHABLE as error:  # and errors of the disk
            why = f"{error}; XDG_CACHE_HOME names another folder"
            raise ModelError(f"model '{spec}': it could not be copied to {copy.parent} ({why})") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return copy


def list_folder(spec: str, uri: str, patterns: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
    """List a model's files below ``uri``; return (the folder of their copy, {key: relative name}).

    The folder may not exist yet. Raises ModelError as `s3_folder` does.
    """
    from pairmill.ops.read.places.s3 import filesystem, translate_errors
    from pairmill.ops.read.places.tree import SourceError

    root = uri.removeprefix(S3).strip("/")
    try:
        found = translate_errors(uri, lambda: filesystem().find(root, detail=True))
    except (FileNotFoundError, PermissionError) as error:
        why = f"{error or 'no such bucket'}; check the address and the credentials"
        raise ModelError(f"model '{spec}': {why}") from error
    except SourceError as error:
        raise ModelError(f"model '{spec}': {error}") from error
    files = {key: key.removeprefix(f"{root}/") for key in sorted(found)}
    files = {key: name for key, name in files.items() if any(fnmatch(Path(name).name, each) for each in patterns)}
    if not files:
        raise ModelError(f"model '{spec}': no model's files below {uri}; check the address")
    if outside := [name for name in files.values() if name.startswith("/") or ".." in PurePosixPath(name).parts]:
        raise ModelError(f"model '{spec}': the key {outside[0]!r} would leave its folder; rename it")
    stamps = tuple((name, int(found[key]["size"]), str(found[key]["ETag"]).strip('"')) for key, name in files.items())
    digest = hashlib.sha256(repr((S3 + root, stamps)).encode()).hexdigest()[:32]
    return cache_home() / "models" / digest, files
