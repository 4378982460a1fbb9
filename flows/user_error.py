"""Show errors that the user can fix as one line; errors of the program itself keep their traceback."""

import errno
import sys

# Errors other than PairmillError that name their remedy. They are looked up in imported modules only: a module that is
# not imported has raised none, and these two import the readers of all formats and an HTTP client (0.5 CPU s).
REMEDIES = (("pairmill.ops.models.model_digest", "ModelError"), ("pairmill.ops.read.source", "SourceError"))


def user_message(error: BaseException) -> str | None:
    """Return one line for an error that the user can fix, without secrets and control codes.

    None for any other error, whose traceback the caller shows.
    """
    from pairmill.catalog.terms.controls import visible
    from pairmill.catalog.terms.error import PairmillError
    from pairmill.catalog.terms.secrets import hidden

    others = (getattr(sys.modules[module], name) for module, name in REMEDIES if module in sys.modules)
    if isinstance(error, (PairmillError, *others)):
        return visible(hidden(str(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}). Free some space and run again: what is finished is committed."
    return None
