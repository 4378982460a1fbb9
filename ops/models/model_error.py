"""Define ModelError, which every model raises that cannot be used."""


class ModelError(Exception):
    """A model that is missing, unreadable or not usable here; the message says which, why, and the remedy."""
