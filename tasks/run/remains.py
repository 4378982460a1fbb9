"""Remove what killed runs left in the folder of temporary files: the folder of a fork server that answers no more."""

import socket
import tempfile
from contextlib import suppress
from pathlib import Path


def sweep() -> None:
    """Remove the folders of fork servers that have ended. One that runs, or of another user, stays."""
    for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
        with suppress(OSError):
            left = list(folder.iterdir())
            if [path.name.partition("-")[0] for path in left] == ["listener"] and not _answers(left[0]):
                left[0].unlink()
                folder.rmdir()


def _answers(address: Path) -> bool:
    """Whether a process has this socket. Asked for datagrams, which it does not take: a connection would end it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(address))
        except ConnectionRefusedError:
            return False
        except OSError:  # EPROTOTYPE: there is one
            return True
    return True
