"""Read people's judgements: those registered in the lake's tables, and those still in the logs beside it."""

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write.judgement_log import DrawnSample, Judgement, read_log

Line = TypeVar("Line", DrawnSample, Judgement)


@dataclass(frozen=True)
class JudgedSample:
    """A sample, and the judgement that counts of each image and judge, in the order of the sample."""

    sample: DrawnSample
    judgements: tuple[Judgement, ...]

    @property
    def verdicts(self) -> Counter[str]:
        """The number of judgements by verdict."""
        return Counter(each.verdict for each in self.judgements)


def judged_samples(lake: Lake) -> tuple[JudgedSample, ...]:
    """Return every sample with its judgements, the newest sample first; registered or not makes no difference."""
    logged = read_log(lake)
    samples = {each.sample_id: each for each in (*_registered(lake, DrawnSample), *logged.samples)}
    every = {each.judgement_id: each for each in (*_registered(lake, Judgement), *logged.judgements)}
    newest: dict[tuple[str, str, str], Judgement] = {}
    for each in sorted(every.values(), key=lambda each: (each.at, each.judgement_id)):
        newest[each.sample_id, each.image_id, each.judge] = each
    found = sorted(samples.values(), key=lambda each: (each.at, each.sample_id), reverse=True)
    return tuple(JudgedSample(sample, _counting(sample, newest)) for sample in found)


def _counting(sample: DrawnSample, newest: dict[tuple[str, str, str], Judgement]) -> tuple[Judgement, ...]:
    own = (each for each in newest.values() if each.sample_id == sample.sample_id and each.verdict != "undone")
    return tuple(sorted(own, key=lambda each: (each.position, each.judge)))


def _registered(lake: Lake, kind: type[Line]) -> list[Line]:
    """Read the registered rows of ``kind``."""
    table = "judgement_samples" if kind is DrawnSample else "judgements"
    columns = ", ".join(f'"{name}"' for name in kind.model_fields if name != "line")
    return [kind.model_validate(row) for row in lake.rows(f"SELECT {columns} FROM {table}")]
