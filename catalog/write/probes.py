"""Store the answers of models behind endpoints to fixed images, which reveal a changed model."""

from pairmill.catalog.lake.lake import Lake


def first_answers(lake: Lake, model: str) -> tuple[str, ...]:
    """Return a model's answers to its first probe, by the model's digest; () if it was never probed."""
    found = lake.query('SELECT answers FROM probes WHERE model = ? ORDER BY "at" LIMIT 1', (model,))
    return tuple(found[0][0]) if found else ()


def record(
    lake: Lake, run_id: str, model: str, endpoint: str, server: str, answers: tuple[str, ...], agreement: float
) -> None:
    """Store one endpoint's answers, their agreement (0 to 1) with the first answers, and the ``server`` software."""
    lake.retrying(
        lambda: lake.execute(
            "INSERT INTO probes VALUES (?, ?, ?, ?, ?, ?, now())",
            (run_id, model, endpoint, server, list(answers), round(agreement, 4)),
        )
    )
