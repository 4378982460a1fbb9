"""Compute licence and credit of pictures from what their files and their documents state."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_rights
from pairmill.catalog.terms.scores import RIGHTS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops import licence
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session


def credit(session: Session) -> None:
    """Compute the rights of pictures whose file or documents state others than before, if the recipe asks for them."""
    if session.plan.computes(RIGHTS.table):
        made_from = tuple(session.plan.scorer(name) for name in RIGHTS.made_from)
        digest = session.use(RIGHTS.table, Scorer(RIGHTS.name, RIGHTS.table, licence.VERSION, {}, "", made_from))
        session.work_rounds(RIGHTS.step, pending_rights(session.lake, session.plan), CreditPictures(digest))


@dataclass(frozen=True)
class CreditPictures:
    """Job: choose licence and credit of the pictures of one shard, into ``rights``. No file is read."""

    unit: ClassVar[str] = "pictures"

    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Return the rows of one item's pictures."""
        stated = zip(item.inputs["claims"], item.inputs["documents"], strict=True)
        return [self._part(item, [licence.choose_rights(claims, documents) for claims, documents in stated])]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for pictures whose statements kill their worker."""
        return [self._part(item, [{} for _ in item.keys])]

    def _part(self, item: WorkItem, rows: list[dict[str, str | None]]) -> Part:
        """Make the rows of the pictures."""
        columns = {"sha256": list(item.keys), "input_digest": item.inputs["input_digests"]}
        columns |= {each.name: [row.get(each.name) for row in rows] for each in RIGHTS.columns}
        return Part(RIGHTS.table, pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()}), self.scorer)
