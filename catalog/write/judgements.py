"""Register the judgements that people logged beside a lake in its tables, under the lease."""

import pyarrow as pa
from pydantic import BaseModel

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write.judgement_log import read_log
from pairmill.catalog.write.lease import Writer


def register_judgements(writer: Writer) -> int:
    """Insert every logged sample and judgement that the tables lack, in one transaction; return their number.

    The logs stay as they are. Lines that are not valid are left out: the browser's page names them.

    Raises:
        LeaseLost: Another process took the lease over.
    """
    lake, logged = writer.lake, read_log(writer.lake)
    if not logged.samples and not logged.judgements:
        return 0

    def body() -> int:
        samples = _missing(lake, "judgement_samples", "sample_id", logged.samples)
        judgements = _missing(lake, "judgements", "judgement_id", logged.judgements)
        for table, lines in (("judgement_samples", samples), ("judgements", judgements)):
            if lines:
                lake.insert(table, pa.Table.from_pylist([line.model_dump(exclude={"line"}) for line in lines]))
        return len(samples) + len(judgements)

    return lake.retrying(body)


def _missing(lake: Lake, table: str, key: str, lines: tuple[BaseModel, ...]) -> list[BaseModel]:
    """Return the lines whose key is not in the table."""
    known = {row[0] for row in lake.query(f"SELECT {key} FROM {table}")}
    return [line for line in lines if getattr(line, key) not in known]
