"""Format errors that the user can fix as one line; errors of the program itself keep their traceback."""

import errno
import resource
import sys

# Errors other than PairmillError that name their remedy. They are looked up in imported modules only: a module that is
# not imported has raised none, and these two import the readers of all formats and an HTTP client (0.5 CPU s).
REMEDIES = (("pairmill.ops.models.model_digest", "ModelError"), ("pairmill.ops.read.source", "SourceError"))


def user_message(error: BaseException) -> str | None:
    """Format an error that the user can fix as one line, without secrets and control codes.

    Return None for any other error: the caller shows its traceback.
    """
    from pairmill.catalog.terms.controls import visible
    from pairmill.catalog.terms.error import PairmillError
    from pairmill.catalog.terms.lack_of_memory import lack_of_memory
    from pairmill.catalog.terms.secrets import hide_secrets

    others = (getattr(sys.modules[module], name) for module, name in REMEDIES if module in sys.modules)
    if isinstance(error, (PairmillError, *others)):
        return visible(hide_secrets(str(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}). Free some space and run again: what is finished is committed."
    if (cause := lack_of_memory(error)) is not None:
        most, said = resource.getrlimit(resource.RLIMIT_AS)[0], " ".join(str(cause).split())
        limit = "" if most == resource.RLIM_INFINITY else f" beyond {most / 1e6:,.0f} MB (ulimit -v)"
        return visible(
            f"memory does not suffice. Free some, raise this process's limit{limit}, or use a larger machine, and run "
            f"again: what is finished is committed. ({said[:300] or type(cause).__name__})"
        )
    return None
