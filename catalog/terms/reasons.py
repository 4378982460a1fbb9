"""List the reasons for quarantining an item: a closed list, shared by ops and catalog.

`infra/site/reasons.yaml` has the meaning and the remedy of each, for the documents.
"""

REASONS = (
    "empty", "truncated", "undecodable", "not_an_image", "too_large", "bomb", "bad_record", "bad_encoding",
    "unsafe_path", "left_out", "missing", "damaged", "blocked_address", "opt_out", "banned", "http_status", "timeout",
    "too_many_redirects", "poison", "out_of_memory", "model_error",
)  # fmt: skip
