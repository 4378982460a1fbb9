"""Items in flight share a model's slots: each item's rows are its own, and no row stays leased."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.backends import LanguageModel
from pairmill.ops.models.generate import refilled_decoding
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.language.language_model_loaded import load
from pairmill.tasks.generate.fusion import FuseTexts
from pairmill.tasks.generate.generative_job import Queries
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.pool.messages import RowLease, RowsFinished
from pairmill.tasks.run.pool.model_line import ModelLine

FUSER = f"hf:{Path(__file__).parents[2] / 'infra' / 'demo' / 'models' / 'fuser'}"
SEEN = ("a red circle", "two blue squares beside a tree", "a green star under the old tree", "one dog", "a boat")


def items() -> list[WorkItem]:
    made = []
    for number in range(3):
        captions = [f"{SEEN[(number + row) % 5]} {row}" for row in range(7)]
        inputs = {"captions": captions, "tags": [["tree"]] * 7, "sentences": list(SEEN[:5]) + list(SEEN[:2])}
        inputs["input_digests"] = [f"{number}-{row}" for row in range(7)]
        made.append(WorkItem(f"shard-{number}", tuple(f"{number}-{row}" for row in range(7)), inputs=inputs))
    return made


def texts(manifests: list[Manifest]) -> dict[str, str]:
    rows = [row for each in manifests for row in pq.read_table(each.path, partitioning=None).to_pylist()]  # pyright: ignore[reportArgumentType]
    return {row["sha256"]: row["synthetic_text"] for row in rows}


def test_items_in_flight_are_decoded_together_and_written_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    torch.set_num_threads(1)
    job = FuseTexts(Queries(LanguageModel(FUSER, batch_size=6), None, 12, "a"), "{caption}. {tags}. {sentence}", "s")
    plain, work = ModelLine(job, 0, lambda _: None), items()
    alone = [texts(plain(n, item, Output(f"{tmp_path}/alone/", "run", 1))) for n, item in enumerate(work)]
    answerer = load(FUSER, "fp32").answerer
    monkeypatch.setitem(vars(answerer), "decoder", Decoder(answerer.model, answerer.ends, 0))
    together: set[int] = set()
    advance = refilled_decoding.RefilledDecoder.advance

    def watched(self: Any) -> None:
        together.add(len({id(slot.batch) for slot in self._active.values()}))
        advance(self)

    monkeypatch.setattr(refilled_decoding.RefilledDecoder, "advance", watched)
    monkeypatch.setattr(answerer, "batches", lambda lengths, most, room: [[0, 1], [2], [3, 4], [5, 6]])
    said: list[RowLease | RowsFinished] = []
    line = ModelLine(job, 2, said.append)
    with ThreadPoolExecutor(3) as lanes:
        found = list(lanes.map(line, range(3), work, [Output(f"{tmp_path}/slots/", "run", 1)] * 3))
    line.close()
    assert [texts(each) for each in found] == alone
    assert len({text for item in alone for text in item.values()}) > 5 and max(together) >= 3
    assert all(each.seconds > 0 for manifests in found for each in manifests)
    leases = [each for each in said if isinstance(each, RowLease) and each.place]
    held = {(each.number, each.place) for each in leases if each.keys is not None}
    assert held == {(each.number, each.place) for each in leases if each.keys is None}, "a row stayed leased"
    assert sum(each.rows for each in said if isinstance(each, RowsFinished)) == 21
