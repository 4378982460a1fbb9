"""Implement `pairmill calibrate`: choose a rule's threshold from judgements, so that few kept pairs are wrong."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.explain.why import scope_of
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.figures.models_behind import models_behind
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge.judged_csv import read_verdicts, write_sample
from pairmill.catalog.queries.judge.judged_samples import JudgedSample, judged_samples
from pairmill.catalog.queries.judge.judged_threshold import JudgedThreshold, judged_threshold, sample_of
from pairmill.catalog.queries.judge.sample_draw import drawn_sample, judged_text, lower_bound, pair_texts
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import JudgementLog

JUDGE = "csv"


def calibrate(args: Namespace) -> int:
    """With ``--draw``, draw a sample to judge; else test thresholds by its verdicts. Return 1 if none holds yet."""
    with create_or_open(args.lake, read_only=True) as lake:
        dataset = datasets.find(lake, args.dataset)
        check = _check(lake, dataset, args.rule)
        with Gallery(gallery_file(lake, dataset)) as gallery:
            if args.draw:
                return _draw(args, lake, dataset, check, gallery)
            if args.labels:
                own = [each.sample for each in judged_samples(lake) if each.sample.rule == check.name]
                of = [each for each in own if each.content_digest == dataset.content_digest]
                log = JudgementLog(lake)
                for each in read_verdicts(gallery, of, Path(args.labels), JUDGE):
                    log.append(each)
            sample = sample_of(judged_samples(lake), dataset, check.name)
            if sample is None:
                raise PairmillError(
                    f"nobody has judged a sample of rule '{check.name}' of {dataset}: draw one by `pairmill browse` "
                    f"(Judge), or by pairmill calibrate {dataset} {check.name} --draw 120 --to labels.csv."
                )
            found = judged_threshold(gallery, sample, args.wrong, args.confidence, args.candidates)
        scorers = models_behind(lake, dataset, check)
    _show(found, sample, scorers, args)
    return 0 if found.threshold is not None else 1


def _check(lake: Lake, dataset: datasets.Dataset, rule: str) -> Check:
    """Return the version's rule on images of this name. Raise PairmillError if it has none."""
    checks = {check.name: check for check in plan_of(lake, dataset).image_checks}
    if rule not in checks:
        raise PairmillError(f"{dataset} has no rule '{rule}' on images; there are {', '.join(checks)}.")
    return checks[rule]


def _draw(args: Namespace, lake: Lake, dataset: datasets.Dataset, check: Check, gallery: Gallery) -> int:
    """Draw a sample above the loosest candidate, log it, and write it as CSV."""
    quantity = lower_bound(check, gallery)
    from_ = min(args.candidates) if args.candidates else quantity.low if quantity and quantity.low is not None else 0.0
    sample = drawn_sample(gallery, dataset, check, from_)
    scope, known = scope_of(lake, dataset), pair_texts(lake, dataset, check.columns)

    def text_of(image_id: str) -> str:
        if image_id in known:  # an explanation takes 0.2 s
            return known[image_id]
        return judged_text(explain_image(lake, image_id, scope), check.columns)[1]

    n = write_sample(gallery, sample, args.draw, Path(args.to or "labels.csv"), text_of)
    JudgementLog(lake).append(sample)
    print(visible(
        f"{args.to or 'labels.csv'}: {n} of {sample.population:,} pairs with {sample.quantity} >= {from_:g}, drawn at "
        "random. Write match, mismatch or unsure into the column verdict, then give the file to --labels."
    ))  # fmt: skip
    return 0


def _show(found: JudgedThreshold, sample: JudgedSample, scorers: dict[str, str], args: Namespace) -> None:
    """Print the candidates, and the rule to put into the recipe: its number with the scorers that it is valid for."""
    if args.format == "json":
        print(json.dumps(asdict(found) | {"scorers": scorers}))
        return
    print(f"{found.judged} judged pairs of a random sample; at most {args.wrong:.1%} wrong at {args.confidence:.0%}")
    print(f"{'threshold':>10}{'keeps':>10}{'labels':>8}{'wrong':>7}{'bound':>8}  {'outcome':<12}lacking")
    for each in found.candidates:
        lacking = f"{each.lacking} more without an error" if each.lacking else ""
        print(f"{each.threshold:>10.4g}{each.population:>10,}{each.labels:>8}{each.wrong:>7}{each.bound:>8.1%}  "
              f"{each.outcome:<12}{lacking}")  # fmt: skip
    if found.threshold is None:
        print("no threshold holds yet: judge as many more pairs as are lacking, then ask once more", file=sys.stderr)
    else:
        keep = f"{sample.sample.quantity} >= {found.threshold:.9g}"
        print(visible(f"{keep} holds"))
        bound = ", ".join(f"{name}: '{digest}'" for name, digest in scorers.items())
        with_scorers = f", scorers: {{{bound}}}" if bound else ""  # by another model the number means something else
        print(visible(f'rule    {{name: {sample.sample.rule}, keep: "{keep}"{with_scorers}}}'))
