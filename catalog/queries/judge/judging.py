"""Draw samples of a rule's images for people to judge, log their verdicts, and choose the rule's threshold by them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.version_plan import models_behind
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why import Scope
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge.judged_csv import read_verdicts, write_sample
from pairmill.catalog.queries.judge.judged_threshold import JudgedThreshold, judged_threshold, sample_of
from pairmill.catalog.queries.judge.sample_draw import (
    drawn_sample,
    images_of,
    judged_samples,
    judged_text,
    lower_bound,
    pair_texts,
)
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, JudgementLog

JUDGE = "csv"


@dataclass(frozen=True)
class VersionJudging:
    """Samples of one version's rules on images, and people's judgements of them; ``gallery`` is the version's.

    Methods raise PairmillError if the version has no such rule on images.
    """

    lake: Lake
    dataset: Dataset
    scope: Scope
    gallery: Gallery

    def rules(self) -> list[tuple[str, Quantity]]:
        """Return the rules with a lower threshold, and what they compare; those on similarities come first."""
        bounds = [(check.name, lower_bound(check, self.gallery)) for check in self._checks()]
        rules = [(name, bound) for name, bound in bounds if bound]
        return sorted(rules, key=lambda rule: not any("similarity" in column for column in rule[1].columns))

    def draw(self, rule: str, threshold: float | None = None) -> DrawnSample:
        """Draw a sample of the images that a rule keeps at ``threshold``, by default its own; the caller logs it.

        Raises PairmillError if it has no lower bound, or no image is above it.
        """
        check = self._rule(rule)
        quantity = lower_bound(check, self.gallery)
        own = quantity.low if quantity and quantity.low is not None else 0.0
        return drawn_sample(self.gallery, self.dataset, check, own if threshold is None else threshold)

    def images(self, sample: DrawnSample) -> list[dict[str, Any]]:
        """Return the images of a sample (image_id, sha256, value, dropped_by) in its order, MOST_JUDGED at most."""
        return images_of(self.gallery, sample)

    def text(self, sample: DrawnSample, image_id: str) -> tuple[str, str]:
        """Return kind and text of what the sample's rule compares with a picture; '' if it has none."""
        columns = self._rule(sample.rule).columns
        return judged_text(explain_image(self.lake, image_id, self.scope), columns)

    def write(self, sample: DrawnSample, n: int, to: Path) -> int:
        """Write ``n`` pairs of a sample as CSV to be judged, and log the sample; return their number.

        Raises PairmillError if the file cannot be written.
        """
        known = pair_texts(self.lake, self.dataset, self._rule(sample.rule).columns)

        def text_of(image_id: str) -> str:  # an explanation takes 0.2 s
            return known[image_id] if image_id in known else self.text(sample, image_id)[1]

        written = write_sample(self.gallery, sample, n, to, text_of)
        JudgementLog(self.lake).append(sample)
        return written

    def read(self, rule: str, file: Path) -> None:
        """Log the verdicts of a CSV on samples of this version and rule. Raises PairmillError as `read_verdicts`."""
        own = [each.sample for each in judged_samples(self.lake) if each.sample.rule == rule]
        own = [each for each in own if each.content_digest == self.dataset.content_digest]
        log = JudgementLog(self.lake)
        for each in read_verdicts(self.gallery, own, file, JUDGE):
            log.append(each)

    def calibrate(self, rule: str, wrong: float, confidence: float, candidates: Sequence[float]) -> JudgedThreshold:
        """Test thresholds of a rule by the judgements. Raises PairmillError if nobody has judged a sample."""
        check, dataset = self._rule(rule), self.dataset
        sample = sample_of(judged_samples(self.lake), dataset, rule)
        if sample is None:
            raise PairmillError(
                f"nobody has judged a sample of rule '{rule}' of {dataset}: draw one by `pairmill browse` (Judge), or "
                f"by pairmill calibrate {dataset} {rule} --draw 120 --to labels.csv."
            )
        found = judged_threshold(self.gallery, sample, wrong, confidence, candidates)
        return replace(found, scorers=models_behind(self.lake, dataset, check))

    def _checks(self) -> tuple[Check, ...]:
        return self.scope.plan.image_checks if self.scope.plan else ()

    def _rule(self, rule: str) -> Check:
        checks = {check.name: check for check in self._checks()}
        if rule not in checks:
            raise PairmillError(f"{self.dataset} has no rule '{rule}' on images; there are {', '.join(checks)}.")
        return checks[rule]
