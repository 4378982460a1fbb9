"""The errors that a user can mend: each says what is wrong, where, and the remedy."""


class PairmillError(Exception):
    """A condition that its reader can mend; the message says how."""


class LeaseHeld(PairmillError):
    """Another process holds the lake's lease."""


class NewerLake(PairmillError):
    """The lake's schema or format is newer than this program reads."""


class Damaged(PairmillError):
    """A file of the lake is gone, or holds other bytes than were written."""


class BadRecipe(PairmillError):
    """A recipe, or an override of one, is not valid."""


class BadPredicate(BadRecipe):
    """A rule's predicate is not one boolean expression over score columns."""


class BadQuery(PairmillError):
    """SQL that DuckDB refuses: a typing error, an unknown table or column."""


class LeaseLost(PairmillError):
    """This process did not renew its lease in time, and another took it over."""


def stop_behind(error: BaseException) -> BaseException:
    """Return the Ctrl-C or signal that ``error`` stands for, else ``error``.

    DuckDB makes "RuntimeError: Query interrupted" of whatever a signal's handler raises during a query.
    """
    cause = error.__cause__
    return error if cause is None or isinstance(cause, Exception) else cause
