"""Rows as JSON lines and as separated values."""

import io
import json


def jsonl(rows):
    return "\n".join(json.dumps(row) for row in rows).encode()


def separated(rows, mark):
    import csv

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()
