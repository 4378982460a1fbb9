"""Print the answer of `pairmill why`: images, documents, addresses, sentences and quarantined items."""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from pairmill.flows.command.terminal import console, shown

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Explanation

Facts = dict[str, Any]


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
    """Yield an image: origin, scores, rules, duplicate group, cluster, matched and generated texts, datasets."""
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
    """Yield a document: title, source, its images with their decisions, number of sentences."""
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
    """Yield an address: whether and how it was fetched."""
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
    """Yield a sentence: occurrences, scores, rules, duplicates, cluster, and the images that use it."""
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
