"""Draw samples of a rule's images for people to judge, log their verdicts, and choose the rule's threshold by them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.trial_cut import models_behind
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why import Scope
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge import judged_samples
from pairmill.catalog.recipe.parts import Rule
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, Id, Judgement, JudgementLog

COLUMNS = ("sample_id", "position", "image_id", "url", "text", "verdict")  # of a CSV to judge


class JudgedLine(BaseModel):
    """One line of a CSV of judgements; ``verdict`` is '' if not judged yet. Further columns are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sample_id: Id
    position: Annotated[int, Field(ge=0, lt=judged_samples.MOST_JUDGED)]
    image_id: Id
    verdict: Literal["match", "mismatch", "unsure", ""] = ""
    text: str = Field("", max_length=100_000)


@dataclass(frozen=True)
class VersionJudging:
    """Samples and people's judgements of one version's rules on images; ``gallery`` is the version's gallery file.

    Methods raise PairmillError for an unknown rule.
    """

    lake: Lake
    dataset: Dataset
    scope: Scope
    gallery: Gallery

    def rules(self) -> list[tuple[str, Quantity]]:
        """Return (name, compared quantity) of the rules with a lower threshold and of all numeric scores.

        Similarities come first. The threshold of a score that no rule reads is its lowest value of a kept picture.
        """
        scores = map(self._on_score, self.gallery.numbers)
        checks = (*self._checks(), *(check for check in scores if check))
        bounds = [(check.name, judged_samples.lower_bound(check, self.gallery)) for check in checks]
        rules = [(name, bound) for name, bound in bounds if bound]
        return sorted(rules, key=lambda rule: not any("similarity" in column for column in rule[1].columns))

    def draw(self, rule: str, threshold: float | None = None) -> DrawnSample:
        """Draw a sample of the images that a rule keeps at ``threshold`` (None: its own threshold); the caller logs it.

        Raises PairmillError if the rule has no lower bound, or keeps no image at the threshold.
        """
        return judged_samples.draw_sample(self.gallery, self.dataset, self._rule(rule), threshold)

    def images(self, sample: DrawnSample) -> list[dict[str, Any]]:
        """Return (image_id, sha256, value, dropped_by) rows of a sample's first MOST_JUDGED images, in its order."""
        return judged_samples.images_of(self.gallery, sample)

    def text(self, sample: DrawnSample, image_id: str) -> tuple[str, str]:
        """Return (kind, text) of the text that the sample's rule compares with the picture; text '' if it has none."""
        columns = self._rule(sample.rule).columns
        return judged_samples.judged_text(explain_image(self.lake, image_id, self.scope), columns)

    def write(self, sample: DrawnSample, n: int, to: Path) -> int:
        """Write ``n`` pairs of a sample to the new CSV file ``to`` with empty verdicts; log the sample; return ``n``.

        Raises PairmillError if the file exists, because it may hold verdicts, or cannot be written.
        """
        images = judged_samples.images_of(self.gallery, sample, n)
        known = judged_samples.pair_texts(self.lake, self.dataset, self._rule(sample.rule).columns)
        try:
            with open(to, "x", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(COLUMNS)
                for position, image in enumerate(images):
                    image_id = image["image_id"]
                    url = (self.gallery.image(image_id) or {}).get("url") or ""
                    # An explanation takes 0.2 s.
                    text = known[image_id] if image_id in known else self.text(sample, image_id)[1]
                    writer.writerow([sample.sample_id, position, image_id, url, text, ""])
        except OSError as error:
            raise PairmillError(f"'{to}' cannot be written ({error.strerror}); name a new file by --to.") from error
        JudgementLog(self.lake).append(sample)
        return len(images)

    def read(self, rule: str, file: Path) -> None:
        """Log the verdicts of a judged CSV on samples of this version and rule.

        Raises PairmillError, and logs nothing, for another kind of file, an unknown sample, or a line whose image is
        not at its position in the sample.
        """
        of_version = [each.sample for each in judged_samples.judged_samples(self.lake) if each.sample.rule == rule]
        known = {each.sample_id: each for each in of_version if each.content_digest == self.dataset.content_digest}
        drawn: dict[str, list[dict[str, Any]]] = {}
        found = []
        for number, line in _lines(file):
            if not line.verdict:
                continue
            place = f"{file}, line {number}"
            if line.sample_id not in known:
                raise PairmillError(f"{place}: this lake drew no sample '{line.sample_id}' of this version.")
            if line.sample_id not in drawn:
                drawn[line.sample_id] = judged_samples.images_of(self.gallery, known[line.sample_id])
            images = drawn[line.sample_id]
            if line.position >= len(images) or images[line.position]["image_id"] != line.image_id:
                raise PairmillError(f"{place}: image '{line.image_id}' is not at this position; keep its line.")
            found.append(Judgement(**line.model_dump(), value=images[line.position]["value"], judge="csv"))
        log = JudgementLog(self.lake)
        for each in found:
            log.append(each)

    def calibrate(
        self, rule: str, wrong: float, confidence: float, candidates: Sequence[float]
    ) -> judged_samples.JudgedThreshold:
        """Choose the rule's threshold at which at most the share ``wrong`` is wrong, by the judgements of its sample.

        Arguments as in `judged_threshold`. Raises PairmillError if nobody has judged a sample of the rule.
        """
        check, dataset = self._rule(rule), self.dataset
        sample = judged_samples.sample_of(judged_samples.judged_samples(self.lake), dataset, rule)
        if sample is None:
            raise PairmillError(
                f"nobody has judged a sample of rule '{rule}' of {dataset}: draw one by `pairmill browse` (Judge), or "
                f"by pairmill calibrate {dataset} {rule} --draw 120 --to labels.csv."
            )
        found = judged_samples.judged_threshold(self.gallery, sample, wrong, confidence, candidates)
        return replace(found, scorers=models_behind(self.lake, dataset, check))

    def _checks(self) -> tuple[Check, ...]:
        return self.scope.plan.image_checks if self.scope.plan else ()

    def _rule(self, rule: str) -> Check:
        checks = {check.name: check for check in self._checks()}
        if rule not in checks:
            if found := self._on_score(rule) if rule in self.gallery.numbers else None:
                return found
            known = ", ".join([*checks, *self.gallery.numbers])
            raise PairmillError(f"{self.dataset} has no rule '{rule}' on images, and no such score; there are {known}.")
        return checks[rule]

    def _on_score(self, column: str) -> Check | None:
        """Return a rule that keeps every kept image with a value of a score; None if there is none."""
        tables = self.scope.plan.image_tables if self.scope.plan else ()
        table = next((each for each in tables if column in each.columns), None)
        low = self.gallery.rows(f"SELECT min({column})::DOUBLE AS low FROM images WHERE dropped_by = ''")[0]["low"]
        if table is None or low is None:
            return None
        keep = f"({column} >= {low!r})"
        rule = Rule.model_construct(name=column, keep=keep)
        return Check(column, keep, (column,), (table.table,), table.stage, rule)


def _lines(file: Path) -> Iterator[tuple[int, JudgedLine]]:
    """Yield (line number, validated line) of a judged file. Raise PairmillError for an invalid line."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as opened:
            for number, row in enumerate(csv.DictReader(opened), 2):
                row.pop(None, None)  # type: ignore[call-overload]
                yield number, JudgedLine.model_validate({key: value or "" for key, value in row.items()})
    except ValidationError as error:
        fault = error.errors()[0]
        raise PairmillError(
            f"{file}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}. Its columns are {', '.join(COLUMNS)}; a "
            "verdict is match, mismatch, unsure or empty."
        ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PairmillError(f"'{file}' cannot be read as CSV ({error}).") from error
