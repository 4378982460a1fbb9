"""Show errors that a user can mend in one line; faults of this program keep their traceback."""

import errno


def user_message(error: BaseException) -> str | None:
    """Return the line to show for ``error``, without secrets and control codes; None for a fault of the program."""
    from catalog.terms.controls import visible
    from catalog.terms.error import PairmillError
    from catalog.terms.secrets import without_users
    from ops.models.model_digest import ModelError
    from ops.read.source import SourceError

    if isinstance(error, PairmillError | ModelError | SourceError):
        return visible(without_users(str(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}). Free some space and run again: what is finished is committed."
    return None
