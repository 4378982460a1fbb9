"""Print the answer of `pairmill why`: images, documents, addresses, sentences and quarantined items."""

from typing import TYPE_CHECKING, Any

from rich.console import Console

from pairmill.flows.command.terminal import console, shown

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Explanation

Facts = dict[str, Any]


def print_explanation(found: "Explanation") -> None:
    """Print all that an item refers to."""
    screen = console()
    for facts in found.documents:
        _print_document(facts, screen)
    for facts in found.addresses:
        _print_address(facts, screen)
    for facts in found.images:
        _print_image(facts, screen)
    for facts in found.sentences:
        _print_sentence(facts, screen)
    for row in found.other_images:
        said = decision_text(row) if "dropped_by" in row else ""
        screen.print(f"also image {shown(row['image_id'])}  {said}")
    for content in found.other_sentences:
        screen.print(f"also sentence {shown(content)}")
    if not (found.images or found.addresses):
        _print_quarantine(found.quarantine, screen)


def _print_image(facts: Facts, screen: Console) -> None:
    """Print an image: origin, scores, rules, duplicate group, cluster, matched and generated texts, datasets."""
    origin = facts["origin"]
    screen.print(f"[bold]image {shown(origin['image_id'])}[/]  {shown(origin['url'][:300])}")
    screen.print(
        f"  document  {shown(origin['document'])}, place {shown(origin['position'])} (source {shown(origin['source'])})"
    )
    screen.print(f"  picture   {origin['width']} x {origin['height']} {origin['format']}, {origin['n_bytes']:,} bytes, "
                 f"sha256 {shown(origin['sha256'])}, occurs {origin['occurrences']} times")  # fmt: skip
    if origin["superseded"]:
        screen.print(f"  [yellow]superseded[/] at commit {origin['superseded']}: its page says something else now")
    if origin["alt_text"]:
        screen.print(f"  alt text  {shown(origin['alt_text'])}")
    screen.print(f"  ingested  {origin['ingested']:%Y-%m-%d %H:%M:%S} by run {shown(origin['run_id'])}")
    _scores(facts, screen)
    _rules(facts, screen)
    if group := facts["group"]:
        screen.print(f"  group     of {group['pictures']} like pictures ({shown(group['group_id'])})")
        for other in group["others"]:
            near = other["near"] or "by way of others"
            screen.print(
                f"            {shown(other['image_id'])}  {near}  {decision_text(other)}  {shown(other['url'][:120])}"
            )
    if cluster := facts["cluster"]:
        rank = ""
        if "rank" in cluster:
            rank = f", place {cluster['rank']} of {cluster['survivors']} survivors, cap {cluster['cap']}"
        screen.print(f"  cluster   {cluster['cluster']}{rank}")
    for match in facts["matches"]:
        mark = f"text{match['place']}" if match["place"] else "     "
        screen.print(
            f"  match     {match['similarity']:.4f}  {mark}  {shown(match['text'])}  [dim]{shown(match['content'])}[/]"
        )
        if match["given"]:
            screen.print(f"            as its duplicate: {shown(match['given'])}")
    for text in facts["texts"]:
        by = f" by {shown(text['by'])}" if text["by"] else ""
        by += f", similarity {text['similarity']:.4f}" if text.get("similarity") is not None else ""
        by += ", {} {:.3f}".format(*text["score"]) if text.get("score") else ""
        by += {True: ", chosen", False: ", not chosen"}.get(text.get("chosen"), "")
        said = "" if text["current"] else "  (not of this dataset)"
        screen.print(
            f"  {shown(text['kind']):<9} {shown(text['text'] or '')}  [dim]{shown(text['status'])}{by}{said}[/]"
        )
    _print_quarantine(facts["quarantine"], screen)
    _versions(facts["datasets"], screen)


def _print_document(facts: Facts, screen: Console) -> None:
    """Print a document: title, source, its images with their decisions, number of sentences."""
    origin = facts["origin"]
    screen.print(f"[bold]document {shown(origin['document_id'])}[/]  {shown(origin['uri'])}")
    screen.print(f"  title     {shown(origin['title'] or '')}\n  source    {shown(origin['source'])}")
    if facts["superseded"]:
        screen.print(f"  [yellow]superseded[/] at commit {facts['superseded']}: its source says something else now")
    for image in facts["images"]:
        decision = "" if image["dropped_by"] is None else decision_text(image)
        screen.print(f"  image     {shown(image['image_id'])}  {shown(image['url'][:200])}  {decision}")
    screen.print(f"  sentences {facts['sentences']}")


def _print_address(facts: Facts, screen: Console) -> None:
    """Print an address: whether and how it was fetched."""
    screen.print(f"[bold]address[/] {shown(facts['url'][:300])}  named by {facts['documents']} documents")
    if facts["reason"] is None:
        screen.print("  not fetched yet")
        return
    status = f"HTTP {facts['http_status']}, " if facts["http_status"] else ""
    said = f"{status}{facts['attempts']} attempts, {facts['fetched_at']:%Y-%m-%d %H:%M:%S}"
    if not facts["reason"]:
        screen.print(f"  [green]fetched[/]   {said}")
        return
    again = f"; `pairmill run RECIPE --retry {facts['reason']}` asks again" if facts["passing"] else ""
    screen.print(f"  [red]{shown(facts['reason'])}[/]: {shown(facts['detail'])}  ({said}{again})")


def _print_sentence(facts: Facts, screen: Console) -> None:
    """Print a sentence: occurrences, scores, rules, duplicates, cluster, and the images that use it."""
    origin = facts["origin"]
    screen.print(f"[bold]sentence {shown(origin['content'])}[/]  {shown(origin['text'])}")
    screen.print(f"  occurs    {origin['repeats']} times")
    for each in origin["occurrences"]:
        screen.print(f"            {shown(each['sentence_id'])}  {shown(each['document'])}, place {each['position']}")
    _scores(facts, screen)
    _rules(facts, screen)
    if group := facts["group"]:
        screen.print(f"  group     {group['sentences']} duplicate sentences")
    if group and group["keeper"]:
        screen.print(
            f"            {shown(group['keeper']['content'])} stands for all: {shown(group['keeper']['text'])}"
        )
    if facts["cluster"]:
        screen.print(f"  cluster   {facts['cluster']['cluster']}")
    screen.print(f"  candidate of {facts['candidate']['pictures']} pictures")
    for each in facts["candidate"]["nearest"][:5]:
        screen.print(f"            {each['similarity']:.4f}  {shown(each['image_id'])}  {shown(each['url'][:120])}")
    for each in facts["used"]:
        screen.print(f"  used      as text{each['place']} of {shown(each['image_id'])}  {shown(each['url'][:120])}")
    for row in facts["datasets"]:
        screen.print(f"  dataset   {shown(row['dataset'])}@{row['version']}: in {row['pairs']} pairs")


def _scores(facts: Facts, screen: Console) -> None:
    """Print the scores in one line, if there are any."""
    if facts["scores"]:
        screen.print("  scores    " + shown(", ".join(f"{name} {_value(v)}" for name, v in facts["scores"].items())))


def _rules(facts: Facts, screen: Console) -> None:
    """Print each rule with its verdict and values, then the decision."""
    for rule in facts["rules"]:
        values = ", ".join(f"{name} {_value(v)}" for name, v in rule["values"].items())
        mark = {True: "[green]keeps[/]", False: "[red]drops[/]", None: "[dim]not scored[/]"}[rule["kept"]]
        screen.print(
            f"  rule      {mark}  {rule['rule']}: {shown(' '.join(rule['keep'].split()))}  [dim]{shown(values)}[/]"
        )
    if decision := facts["decision"]:
        screen.print(f"  decision  {decision_text(decision)} in {shown(decision['dataset'])}")


def decision_text(row: Facts) -> str:
    """Format a decision: kept, dropped by which rule with which value, or not decided."""
    if row.get("dropped_by") is None:
        return "not decided"
    if not row["dropped_by"]:
        return "[green]kept[/]"
    value = f" ({shown(row['value'])})" if row.get("value") else ""
    return f"[red]dropped by {shown(row['dropped_by'])}[/]{value}"


def _print_quarantine(rows: list[Facts], screen: Console) -> None:
    """Print quarantined items, a line each."""
    for row in rows:
        detail = shown(row["detail"] or "")
        screen.print(
            f"[yellow]quarantine[/]  {row['reason']} at '{shown(row['stage'])}': {detail}  "
            f"[dim]{shown(row['item'][:200])}[/]"
        )


def _versions(rows: list[Facts], screen: Console) -> None:
    """Print the decision of each dataset version."""
    for row in rows:
        screen.print(f"  dataset   {shown(row['dataset'])}@{row['version']}: {decision_text(row)}")


def _value(value: Any) -> str:
    """Format a value: floats in short form, NULL, other values up to 120 characters."""
    if isinstance(value, float):
        return f"{value:g}"
    return "NULL" if value is None else str(value)[:120]
