"""Why an item is in quarantine: the closed list of reasons.

ops/fault.py holds the same list (neither package imports the other); a test compares the two.
"""

REASONS: tuple[str, ...] = (
    "empty",
    "truncated",
    "undecodable",
    "not_an_image",
    "too_large",
    "bomb",
    "bad_record",
    "bad_encoding",
    "unsafe_path",
    "missing",
    "blocked_address",
    "opt_out",
    "banned",
    "http_status",
    "timeout",
    "too_many_redirects",
    "poison",
    "out_of_memory",
    "model_error",
)
