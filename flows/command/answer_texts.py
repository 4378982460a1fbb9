"""Print the answers of `pairmill status`, `diff`, `calibrate` and `why`."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.command.ask import answer, ask, print_answer
from pairmill.flows.command.terminal import console, shown, table

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Explanation, JudgedThreshold, LakeStatus, Spread, VersionDiff

Facts = dict[str, Any]


def print_diff(found: "VersionDiff") -> None:
    """Print a difference as tables: counts by cause and group, and the drift of values."""
    print(visible(f"{found.before} has {found.pairs_before:,} pairs, {found.after} {found.pairs_after:,}"))
    print(f"gained {found.gained:,}, lost {found.lost:,}, changed {found.changed:,}")
    if found.causes:
        print(f"\n{'pairs':<9}{'because of':<12}{'cause':<44}{'number':>10}")
    for each in found.causes:
        print(visible(f"{each.kind:<9}{each.why:<12}{each.cause[:42]:<44}{each.n:>10,}"))
    if found.groups:
        print(f"\n{'group':<10}{'value':<46}{'gained':>9}{'lost':>10}")
    for each in found.groups:
        print(visible(f"{each.group:<10}{each.value[:44]:<46}{each.gained:>9,}{each.lost:>10,}"))
    print(f"\n{'measure':<22}{'':<14}{'pairs':>9}{'mean':>9}{'10 %':>9}{'median':>9}{'90 %':>9}")
    for each in found.drift:
        print(visible(f"{each.measure:<22}{found.before[-13:]:<14}{_spread(each.before)}"))
        print(visible(f"{'':<22}{found.after[-13:]:<14}{_spread(each.after)}"))


def _spread(spread: "Spread") -> str:
    """Format count, mean and quantiles of a measure in columns."""
    values = (spread.mean, spread.p10, spread.p50, spread.p90)
    return f"{spread.n:>9,}" + "".join(f"{'–' if value is None else f'{value:.4g}':>9}" for value in values)


def print_status(found: "LakeStatus") -> None:
    """Print the lake's row counts, datasets, lease and last runs."""
    screen = console()
    counts = ", ".join(f"{n:,} {table}" for table, n in found.rows.items())
    screen.print(f"[bold]lake {shown(found.lake)}[/]  format {found.format}, {counts}")
    if not found.datasets:
        screen.print("no dataset yet; `pairmill run RECIPE --dry-run` counts what a run would do.")
    for each in found.datasets:
        by = f", by [yellow]{MARK}[/]" if each.weights else ""
        screen.print(f"dataset  {shown(each.dataset)}  {each.pairs:,} pairs, {_time(each.created)}{by}")
        for rate in () if each.weights else found.canaries[each.dataset]:
            screen.print(f"rule     {shown(rate)}")
    left = f" (left behind by {shown(found.left_by)})" if found.left_by else ""
    screen.print(f"lease    {shown(found.writer)}" if found.writer else f"lease    free: nobody writes{left}")
    if found.writer and found.writer.waiting:
        screen.print(f"now      {shown(found.writer.waiting)}")
    if found.unfinished:
        screen.print(f"removal  [yellow]{shown(found.unfinished)}[/]")
    for run in found.runs:
        spent = f" in {(run.finished_at - run.started_at).total_seconds():.0f} s" if run.finished_at else ""
        said = f"{run.state}{spent}" + (f": {run.error[:200]}" if run.error else "")
        about = shown(f"{run.flow} {run.recipe}, {_time(run.started_at)}, {said}")
        screen.print(f"run      {run.run_id}  {about}")
        for note in run.notes:
            screen.print(f"note     {shown(note)}")
    if not found.usage:
        return
    texts = table("\ntexts made by these runs", ["run", "step"], ["texts", "tokens", "tokens/s", "retries", "cost"])
    for each in found.usage:
        counts = (f"{n:,}" for n in (each.rows, each.tokens, round(each.tokens_a_second, 1), each.retries))
        texts.add_row(each.run_id[:8], shown(each.step), *counts, f"{each.cost:,.4f}" if each.cost else "·")
    screen.print(texts)


def _time(at: datetime) -> str:
    """Format a time to the second."""
    return at.isoformat(" ", "seconds")


def calibrate(args: Namespace) -> int:
    """Draw a sample to judge (``--draw``), or test thresholds by its verdicts; return 1 if no threshold holds yet."""
    if args.format == "schema":
        return ask(args)
    with open_lake(args.lake) as lake:
        if args.draw:
            return _draw(args, lake)
        if args.labels:
            with lake.judging(args.dataset) as judging:
                judging.read(args.rule, Path(args.labels))
        found: JudgedThreshold = answer(args, lake)
    if args.format == "table":
        print(
            f"{found.judged} judged pairs of a random sample; at most {args.wrong:.1%} wrong at {args.confidence:.0%}"
        )
    print_answer(args, found)
    return 0 if found.threshold is not None else 1


def _draw(args: Namespace, lake: OpenLake) -> int:
    """Draw a sample above the loosest candidate, and write it as CSV."""
    to = args.to or "labels.csv"
    with lake.judging(args.dataset) as judging:
        sample = judging.draw(args.rule, min(args.candidates, default=None))
        n = judging.write(sample, args.draw, Path(to))
    print(visible(
        f"{to}: {n} of {sample.population:,} pairs with {sample.quantity} >= {sample.threshold:g}, drawn at random. "
        "Write match, mismatch or unsure into the column verdict, then give the file to --labels."
    ))  # fmt: skip
    return 0


def print_threshold(found: "JudgedThreshold") -> None:
    """Print the tested thresholds, and the rule for the recipe: the threshold with the scorers that it is valid for."""
    print(f"{'threshold':>10}{'keeps':>10}{'labels':>8}{'wrong':>7}{'bound':>8}  {'outcome':<12}lacking")
    for each in found.candidates:
        lacking = f"{each.lacking} more without an error" if each.lacking else ""
        print(f"{each.threshold:>10.4g}{each.population:>10,}{each.labels:>8}{each.wrong:>7}{each.bound:>8.1%}  "
              f"{each.outcome:<12}{lacking}")  # fmt: skip
    if found.threshold is None:
        print("no threshold holds yet: judge as many more pairs as are lacking, then ask once more", file=sys.stderr)
    else:
        keep = f"{found.quantity} >= {found.threshold:.9g}"
        print(visible(f"{keep} holds"))
        bound = ", ".join(f"{name}: '{digest}'" for name, digest in found.scorers.items())
        with_scorers = f", scorers: {{{bound}}}" if bound else ""  # by another model the number means something else
        print(visible(f'rule    {{name: {found.rule}, keep: "{keep}"{with_scorers}}}'))


def print_explanation(found: "Explanation") -> None:
    """Print an explanation: each document, address, image and sentence that the item refers to."""
    screen = console()
    for line in _lines(found):
        screen.print(line)


def _lines(found: "Explanation") -> Iterator[str]:
    yield from chain.from_iterable(map(_document, found.documents))
    yield from chain.from_iterable(map(_address, found.addresses))
    yield from chain.from_iterable(map(_image, found.images))
    yield from chain.from_iterable(map(_sentence, found.sentences))
    for row in found.other_images:
        yield f"also image {shown(row['image_id'])}  {_decision(row) if 'dropped_by' in row else ''}"
    for content in found.other_sentences:
        yield f"also sentence {shown(content)}"
    if not (found.images or found.addresses):
        yield from _quarantine(found.quarantine)


def _image(facts: Facts) -> Iterator[str]:
    """Yield the lines of an image: origin, scores, rules, duplicates, cluster, matched, generated texts, datasets."""
    origin = facts["origin"]
    yield f"[bold]image {shown(origin['image_id'])}[/]  {shown(origin['url'][:300])}"
    place = f"{shown(origin['document'])}, place {shown(origin['position'])}"
    yield f"  document  {place} (source {shown(origin['source'])})"
    size = f"{origin['width']} x {origin['height']} {origin['format']}, {origin['n_bytes']:,} bytes"
    yield f"  picture   {size}, sha256 {shown(origin['sha256'])}, occurs {origin['occurrences']} times"
    if origin["superseded"]:
        yield f"  [yellow]superseded[/] at commit {origin['superseded']}: its page says something else now"
    if origin["alt_text"]:
        yield f"  alt text  {shown(origin['alt_text'])}"
    yield f"  ingested  {origin['ingested']:%Y-%m-%d %H:%M:%S} by run {shown(origin['run_id'])}"
    yield from _judged(facts)
    if group := facts["group"]:
        yield f"  group     of {group['pictures']} like pictures ({shown(group['group_id'])})"
        for other in group["others"]:
            said = f"{other['near'] or 'by way of others'}  {_decision(other)}"
            yield f"            {shown(other['image_id'])}  {said}  {shown(other['url'][:120])}"
    if cluster := facts["cluster"]:
        place = f"place {cluster['rank']} of {cluster['survivors']} survivors" if "rank" in cluster else ""
        yield f"  cluster   {cluster['cluster']}" + (f", {place}, cap {cluster['cap']}" if place else "")
    for match in facts["matches"]:
        mark = f"text{match['place']}" if match["place"] else "     "
        said = f"{mark}  {shown(match['text'])}  [dim]{shown(match['content'])}[/]"
        yield f"  match     {match['similarity']:.4f}  {said}"
        if match["given"]:
            yield f"            as its duplicate: {shown(match['given'])}"
    for text in facts["texts"]:
        by = f" by {shown(text['by'])}" if text["by"] else ""
        by += f", similarity {text['similarity']:.4f}" if text.get("similarity") is not None else ""
        by += ", {} {:.3f}".format(*text["score"]) if text.get("score") else ""
        by += {True: ", chosen", False: ", not chosen"}.get(text.get("chosen"), "")
        by += "" if text["current"] else "  (not of this dataset)"
        yield f"  {shown(text['kind']):<9} {shown(text['text'] or '')}  [dim]{shown(text['status'])}{by}[/]"
    for each in facts["edits"]:
        yield f"  edited    {each['field']}, before: {shown(each['before'] or '')}"
        for act in each["acts"]:
            what = f"'{act['pattern']}' by '{act['value']}'" if act["pattern"] else f"'{act['value']}'"
            who = f"{act['act_id'][:8]} of {act['at']:%Y-%m-%d %H:%M} by {act['who']}"
            yield f"            {act['act']} {shown(what)}  [dim]{shown(who)}[/]"
    for act in facts["verdicts"]:
        what = act["act"].replace("_", " ") + (f" {act['word']!r}" if act["word"] else "")
        who = f"{act['act_id'][:8]} of {act['at']:%Y-%m-%d %H:%M} by {act['who']}, before: {act['before']}"
        state = ", undone" if act["is_undone"] else "" if act["is_in"] else ", not published yet"
        yield f"  by hand   {shown(what)}  [dim]{shown(who)}{state}[/]"
    yield from _quarantine(facts["quarantine"])
    for row in facts["datasets"]:
        yield f"  dataset   {shown(row['dataset'])}@{row['version']}: {_decision(row)}"


def _document(facts: Facts) -> Iterator[str]:
    """Yield the lines of a document: title, source, its images with their decisions, number of sentences."""
    origin = facts["origin"]
    yield f"[bold]document {shown(origin['document_id'])}[/]  {shown(origin['uri'])}"
    yield f"  title     {shown(origin['title'] or '')}\n  source    {shown(origin['source'])}"
    if facts["superseded"]:
        yield f"  [yellow]superseded[/] at commit {facts['superseded']}: its source says something else now"
    for image in facts["images"]:
        decision = "" if image["dropped_by"] is None else _decision(image)
        yield f"  image     {shown(image['image_id'])}  {shown(image['url'][:200])}  {decision}"
    yield f"  sentences {facts['sentences']}"


def _address(facts: Facts) -> Iterator[str]:
    """Yield the lines of an address: whether and how it was fetched."""
    yield f"[bold]address[/] {shown(facts['url'][:300])}  named by {facts['documents']} documents"
    if facts["reason"] is None:
        yield "  not fetched yet"
        return
    status = f"HTTP {facts['http_status']}, " if facts["http_status"] else ""
    said = f"{status}{facts['attempts']} attempts, {facts['fetched_at']:%Y-%m-%d %H:%M:%S}"
    again = f"; `pairmill run RECIPE --retry {facts['reason']}` asks again" if facts["passing"] else ""
    fault = f"  [red]{shown(facts['reason'])}[/]: {shown(facts['detail'])}  ({said}{again})"
    yield fault if facts["reason"] else f"  [green]fetched[/]   {said}"


def _sentence(facts: Facts) -> Iterator[str]:
    """Yield the lines of a sentence: occurrences, scores, rules, duplicates, cluster, and the images that use it."""
    origin = facts["origin"]
    yield f"[bold]sentence {shown(origin['content'])}[/]  {shown(origin['text'])}"
    yield f"  occurs    {origin['repeats']} times"
    for each in origin["occurrences"]:
        yield f"            {shown(each['sentence_id'])}  {shown(each['document'])}, place {each['position']}"
    yield from _judged(facts)
    if group := facts["group"]:
        yield f"  group     {group['sentences']} duplicate sentences"
    if group and (keeper := group["keeper"]):
        yield f"            {shown(keeper['content'])} stands for all: {shown(keeper['text'])}"
    if facts["cluster"]:
        yield f"  cluster   {facts['cluster']['cluster']}"
    yield f"  candidate of {facts['candidate']['pictures']} pictures"
    for each in facts["candidate"]["nearest"][:5]:
        yield f"            {each['similarity']:.4f}  {shown(each['image_id'])}  {shown(each['url'][:120])}"
    for each in facts["used"]:
        yield f"  used      as text{each['place']} of {shown(each['image_id'])}  {shown(each['url'][:120])}"
    for row in facts["datasets"]:
        yield f"  dataset   {shown(row['dataset'])}@{row['version']}: in {row['pairs']} pairs"


def _judged(facts: Facts) -> Iterator[str]:
    """Yield the scores in one line, each rule with its verdict and values, then the decision."""
    if facts["scores"]:
        yield f"  scores    {_values(facts['scores'])}"
    for rule in facts["rules"]:
        mark = {True: "[green]keeps[/]", False: "[red]drops[/]", None: "[dim]not scored[/]"}[rule["kept"]]
        keep = shown(" ".join(rule["keep"].split()))
        yield f"  rule      {mark}  {rule['rule']}: {keep}  [dim]{_values(rule['values'])}[/]"
    if decision := facts["decision"]:
        yield f"  decision  {_decision(decision)} in {shown(decision['dataset'])}"


def _decision(row: Facts) -> str:
    """Format a decision: kept, dropped by which rule with which value, or not decided."""
    if row.get("dropped_by") is None:
        return "not decided"
    if not row["dropped_by"]:
        return "[green]kept[/]"
    value = f" ({shown(row['value'])})" if row.get("value") else ""
    return f"[red]dropped by {shown(row['dropped_by'])}[/]{value}"


def _quarantine(rows: list[Facts]) -> Iterator[str]:
    """Yield quarantined items, a line each."""
    for row in rows:
        said = f"{row['reason']} at '{shown(row['stage'])}': {shown(row['detail'] or '')}"
        yield f"[yellow]quarantine[/]  {said}  [dim]{shown(row['item'][:200])}[/]"


def _values(values: Facts) -> str:
    """Format named values: floats in short form, NULL, other values up to 120 characters."""
    return shown(", ".join(f"{name} {_value(value)}" for name, value in values.items()))


def _value(value: Any) -> str:
    """Format one value."""
    if isinstance(value, float):
        return f"{value:g}"
    return "NULL" if value is None else str(value)[:120]
