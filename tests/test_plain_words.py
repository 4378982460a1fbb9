"""The check of refused phrases reads docstrings and comments, and nothing else."""

from infra.plain_words import found

REFUSED = '''"""Map rows to workers."""

TEXT = "where there are none"  # a string is no prose
# An item in the
# worker's hands.


class Waves:
    """Batch shards.

    The session is told of each.
    """

    def close(self):
        """Stop without a
        word; cats and dogs cannot be told apart."""
'''


def test_a_refused_phrase_is_found_in_docstrings_and_comments_with_its_line():
    assert [(line, phrase) for line, phrase, _ in found(REFUSED)] == [
        (4, "in the worker's hands"),
        (11, "is told"),
        (15, "without a word"),
    ]
