"""Define the error that a user can mend; whatever raises it says what is wrong, where, and the remedy."""


class PairmillError(Exception):
    """A condition that its reader can mend; the message says how."""
