"""Keep what models behind endpoints said of the fixed pictures, by which another model is noticed."""

from pairmill.catalog.lake.lake import Lake


def first_answers(lake: Lake, model: str) -> tuple[str, ...]:
    """Return what a model, by its digest, said when it was asked first; () for one that never was."""
    found = lake.query('SELECT answers FROM probes WHERE model = ? ORDER BY "at" LIMIT 1', (model,))
    return tuple(found[0][0]) if found else ()


def record(
    lake: Lake, run_id: str, model: str, endpoint: str, server: str, answers: tuple[str, ...], agreement: float
) -> None:
    """Add what one endpoint said, how far (0 to 1) it agrees with the first answers, and what ``server`` it is."""
    lake.retrying(
        lambda: lake.execute(
            "INSERT INTO probes VALUES (?, ?, ?, ?, ?, ?, now())",
            (run_id, model, endpoint, server, list(answers), round(agreement, 4)),
        )
    )
