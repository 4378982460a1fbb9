"""List the reasons for which an item is quarantined: a closed list, which ops and catalog share."""

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
    "damaged",
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
