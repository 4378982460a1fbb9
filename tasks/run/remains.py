"""Remove the temporary folders of fork servers that were killed."""

import socket
import tempfile
from contextlib import suppress
from pathlib import Path


def sweep() -> None:
    """Remove the folders of fork servers that have ended. Folders of running servers or of other users stay."""
    for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
        with suppress(OSError):
            left = list(folder.iterdir())
            if [path.name.partition("-")[0] for path in left] == ["listener"] and not _answers(left[0]):
                left[0].unlink()
                folder.rmdir()


def _answers(address: Path) -> bool:
    """Return whether a process listens on the socket ``address``.

    Connects as a datagram socket, which the listener refuses: a stream connection would end the fork server.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(address))
        except ConnectionRefusedError:
            return False
        except OSError:  # EPROTOTYPE: a process listens
            return True
    return True
