"""Encode rows as JSON lines or as separated values."""

import io
import json


def jsonl(rows):
    """Encode rows as JSON lines."""
    return "\n".join(json.dumps(row) for row in rows).encode()


def separated(rows, mark):
    """Encode rows as CSV with the delimiter ``mark``."""
    import csv

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()
