"""Publish a cut: pairs, a decision for every image, the funnel and a ``datasets`` row, in one transaction.

Idempotent: nothing is written if the newest version already is this dataset, i.e. it has the same recipe (except
placement), scorers, pairs, decisions and funnel.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass
from datetime import UTC, datetime

import pyarrow as pa

from pairmill.catalog.cut import canaries, facts
from pairmill.catalog.cut.edits import LEFT_OUT, apply_edits, apply_tags
from pairmill.catalog.cut.keepers import surviving
from pairmill.catalog.cut.pair_fit import wrong_pairs
from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.cut.splits import Components, add_divisions
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import CANARY
from pairmill.catalog.pending.eligible import current_scores, decided, image_rows
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write.version_names import highest_version

# Scores of generated texts in ``pairs``, each the only column of its table; NULL if the recipe does not compute it.
PAIR_SIMILARITIES = ("caption_similarity", "synthetic_similarity")


@dataclass(frozen=True)
class Published:
    """Result of `publish`: a dataset version; ``is_new`` is False if the newest version already was this dataset.

    ``notes`` are lines for the user, on splits.
    """

    name: str
    version: int
    n_pairs: int
    content_digest: str
    is_new: bool
    notes: tuple[str, ...] = ()


def publish(
    lake: Lake,
    plan: Plan,
    run_id: str,
    recall: float | None,
    begin: Callable[[], int],
    components: Components | None = None,
) -> Published:
    """Publish the last cut of this connection (:func:`catalog.cut.cut.cut`) as the dataset's next version.

    ``recall`` is stored: the measured recall of the search for candidates, or None. ``begin`` returns the commit's
    number; it is called only if there is something to write. ``components`` is for recipes with `splits`. Raises
    BadRecipe if a split would get no pair.
    """
    _pairs(lake, plan)
    apply_edits(lake, plan)
    apply_tags(lake, plan.recipe.name)
    notes = add_divisions(lake, plan, components)
    digest = content_digest(lake)
    name = plan.recipe.name
    newest = lake.query(
        "SELECT version, content_digest, recipe, scorers FROM datasets WHERE name = ? ORDER BY version DESC LIMIT 1",
        (name,),
    )
    n_pairs = lake.query("SELECT count(*) FROM cut_pairs")[0][0]
    of_images = image_funnel(lake, plan)
    funnel = [("image", *row) for row in of_images] + [("sentence", *row) for row in sentence_funnel(lake, plan)]
    for version, was, recipe, scorers in newest:
        same = (was, scorers) == (digest, _scorers(plan)) and _is_same(recipe, plan.recipe)
        if same and _has_same_decisions(lake, name, version, funnel):
            return Published(name, version, n_pairs, digest, False, notes)
    version = highest_version(lake, name) + 1
    wrong = wrong_pairs(lake, plan)
    funnel += [(CANARY, *row) for row in canaries.try_rules(lake, plan)]
    commit = begin()

    def write() -> None:
        key = f"'{name}' AS dataset, {version} AS version"
        lake.execute(f"INSERT INTO pairs BY NAME SELECT {key}, * FROM cut_pairs ORDER BY image_id")
        lake.execute(f"INSERT INTO edited_texts BY NAME SELECT {key}, * FROM cut_edited ORDER BY image_id")
        lake.execute(
            f"INSERT INTO decisions BY NAME SELECT {key}, image_id AS item_id, 'image' AS kind, dropped_by, "
            f"dropped_value AS value, {_failed_bits([rule for rule, *_ in of_images])} "
            "FROM cut_images ORDER BY image_id"
        )
        columns = ("dataset", "version", "kind", "position", "rule", "n_in", "n_dropped")
        steps = [(name, version, kind, place, *step) for place, (kind, *step) in enumerate(funnel)]
        lake.insert("funnel", pa.table(dict(zip(columns, map(list, zip(*steps, strict=True)), strict=True))))
        if wrong is not None:
            lake.execute("INSERT INTO wrong_pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (name, version, *astuple(wrong)))
        for place, captioner in enumerate(plan.recipe.captioned_by):
            by = [plan.scorer(plan.of_captioner(table, place)) for table in CAPTION_TABLES]
            row = (name, version, place, captioner.name, *by)
            lake.execute("INSERT INTO dataset_captioners VALUES (?, ?, ?, ?, ?, ?)", row)
        recipe = json.dumps(plan.recipe.record(), sort_keys=True), plan.recipe.digest()
        rest = (commit, digest, False, n_pairs, recall, run_id, datetime.now(UTC))
        row = (name, version, *recipe, _scorers(plan), *rest)
        lake.execute(f"INSERT INTO datasets VALUES ({', '.join('?' * len(row))})", row)
        if lake.data_path.startswith("s3://"):  # a store may acknowledge an upload and lose it
            for table in ("pairs", "decisions"):
                lake.query(f"SELECT count(*) FROM {table} WHERE dataset = ? AND version = ?", (name, version))

    lake.retrying(write)
    return Published(name, version, n_pairs, digest, True, notes)


def _failed_bits(steps: list[str]) -> str:
    """Return SQL for ``failed``: bit p is the step at position p of the funnel, up to 64, which the image fails."""
    bits = " ".join(f"WHEN '{step}' THEN {1 << place}" for place, step in enumerate(steps[:64]))
    return f"failed | CAST(CASE dropped_by {bits} ELSE 0 END AS UBIGINT) AS failed"


def count_withheld(lake: Lake) -> dict[str, dict[str, int]]:
    """Count captions and fused texts that the last published cut leaves out of its pairs: kind -> status -> count."""
    found = {}
    for kind, column in (("captions", "caption_status"), ("fused texts", "synthetic_status")):
        counts = f"SELECT {column}, count(*) AS n FROM cut_pairs WHERE {column} <> 'ok' GROUP BY ALL ORDER BY n DESC, 1"
        found[kind] = dict(lake.query(counts))
    return found


def _is_same(published: str, recipe: Recipe) -> bool:
    """Return whether a stored recipe equals ``recipe`` but for placement and `fetch`, whose effects decisions show."""
    try:
        was = Recipe.model_validate(json.loads(published))
    except ValueError:  # it has settings that no longer exist
        return False
    return was.model_copy(update={"fetch": None}).digest() == recipe.model_copy(update={"fetch": None}).digest()


def _has_same_decisions(lake: Lake, name: str, version: int, funnel: list[tuple]) -> bool:
    """Return whether a version has this funnel and the decisions of the last cut.

    Decisions are compared by count and an order-independent digest: 10M rows take 1.4 s on two cores, and no memory.
    """
    steps = (
        "SELECT kind, rule, n_in, n_dropped FROM funnel WHERE dataset = ? AND version = ? "
        f"AND kind <> '{CANARY}' ORDER BY position"
    )
    if lake.query(steps, (name, version)) != funnel:
        return False
    decisions = (
        "SELECT item_id, dropped_by, value FROM decisions WHERE dataset = ? AND version = ?",
        "SELECT image_id AS item_id, dropped_by, dropped_value AS value FROM cut_images",
    )
    was, now = (f"SELECT count(*), bit_xor(md5_number(CAST(to_json(d) AS VARCHAR))) FROM ({d}) d" for d in decisions)
    return lake.query(was, (name, version)) == lake.query(now)


def _scorers(plan: Plan) -> list[str]:
    """Return the sorted digests of the scorers that a published version depends on."""
    # Without a choice among captioners, only the first one's texts are published; the others' names contain a space.
    return sorted({digest for name, digest in plan.scorers.items() if plan.chooses_captions or " " not in name})


def _pairs(lake: Lake, plan: Plan) -> None:
    """Create ``cut_pairs``, the rows to publish; a generated text of a status other than 'ok' is NULL beside it."""
    n = text_columns.count(plan.recipe.association.top_k)
    texts, alike = text_columns.texts(n), text_columns.similarities(n)
    given = ", ".join(
        f"max(text) FILTER (place = {place}) AS {text}, max(similarity) FILTER (place = {place}) AS {similarity}"
        for place, (text, similarity) in enumerate(zip(texts, alike, strict=True), 1)
    )
    scores = {
        "x": ("captions", "text AS caption, status AS caption_status, captioner"),
        "g": ("tags", "tags"),
        "y": ("synthetic", "synthetic_text AS syn_text, synthetic_status"),
        "b": ("image_similarity", "best_similarity"),
    }
    computed = {score.table for score in plan.scores}
    scores |= {f"of_{name}": (name, name) for name in PAIR_SIMILARITIES if name in computed}
    similarities = ", ".join(
        f"of_{name}.{name}" if name in computed else f"NULL::DOUBLE AS {name}" for name in PAIR_SIMILARITIES
    )
    rights = [
        name for name in text_columns.optional_columns(json.dumps(plan.recipe.record())) if name in text_columns.RIGHTS
    ]
    scores |= {"r": ("rights", ", ".join(rights))} if rights and "rights" in computed else {}
    credit = "".join(f", r.{name}" if "r" in scores else f", NULL::VARCHAR AS {name}" for name in rights)
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT * FROM cut_images WHERE dropped_by = ''")
    kept = "WHERE sha256 IN (SELECT sha256 FROM cut_kept)"
    joins = "".join(
        f" LEFT JOIN (SELECT sha256, {columns} FROM {current_scores(plan, table, 'sha256')} {kept}) {alias} "
        f"ON {alias}.sha256 = c.sha256"
        for alias, (table, columns) in scores.items()
    )
    images = image_rows(plan, Stage.INGEST, among="cut_kept")
    shown = f"SELECT * FROM ({images}) WHERE image_id IN (SELECT image_id FROM cut_kept)"
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_pairs AS SELECT c.image_id, c.sha256, i.document_id, i.raw_image_url, "
        f"{', '.join(texts)}, CASE WHEN y.synthetic_status = 'ok' THEN y.syn_text END AS syn_text, "
        "CASE WHEN x.caption_status = 'ok' THEN x.caption END AS caption, i.alt_text, g.tags, i.width, i.height, "
        f"{', '.join(alike)}, b.best_similarity, c.cluster, x.caption_status, "
        f"y.synthetic_status, {similarities}, x.captioner{credit} FROM cut_kept c "
        f"JOIN {with_released_address(shown)} i ON i.image_id = c.image_id "
        f"LEFT JOIN (SELECT image_id, {given} FROM cut_texts GROUP BY image_id) t ON t.image_id = c.image_id{joins}"
    )


def content_digest(lake: Lake) -> str:
    """Hash the content of the pairs to 32 hex digits, without dataset, version, run, time, captioner or ids of images.

    Ids depend on where the source lies; the captioner follows from the recipe and the captions.
    """
    digest = hashlib.sha256()
    pairs = "SELECT * EXCLUDE (image_id, document_id, captioner) FROM cut_pairs"
    rows = f"SELECT sha256(CAST(to_json(p) AS VARCHAR)) AS row FROM ({pairs}) p ORDER BY sha256, row"
    for batch in lake.blocks(rows, rows=100_000):
        digest.update("".join(batch["row"].to_pylist()).encode())
    return digest.hexdigest()[:32]


def image_funnel(lake: Lake, plan: Plan) -> list[tuple[str, int, int]]:
    """Return (rule, images in, images dropped) of the last cut, in the order in which it applies the rules."""
    dropped = dict(lake.query("SELECT dropped_by, count(*) FROM cut_fates GROUP BY dropped_by"))
    early = [check.name for check in plan.image_checks if check.stage < Stage.CAPTION]
    late = [check.name for check in plan.image_checks if check.stage >= Stage.CAPTION]
    used_up = ["max_uses"] if plan.recipe.association.max_uses else []
    capped = ["balance"] if plan.recipe.balance.cap is not None else []
    grouped = ["duplicate"] if plan.recipe.duplicates.is_on else []
    textless = ["no_text"] if plan.recipe.association.at_least else []
    left_out = [LEFT_OUT] * (LEFT_OUT in dropped)
    steps = [*early, *left_out, "exact_duplicate", *grouped, *textless, *late, *capped, *used_up]
    return _steps(steps, dropped, sum(dropped.values()))


def sentence_funnel(lake: Lake, plan: Plan) -> list[tuple[str, int, int]]:
    """Return (rule, sentences in, dropped) in order: merged repeats, rules, then duplicates if the recipe drops them.

    Counted in the facts: joining the scores of 40M sentences takes more than 5 GB, which cannot be spilled.
    """
    facts.attach(lake, plan)
    of_gone = f"SELECT count(*) FROM sentences WHERE document_id IN {gone_documents()}"  # free if there are none
    total = lake.query(f"SELECT (SELECT count(*) FROM sentences) - ({of_gone})")[0][0]
    rows = f"SELECT {decided(plan.sentence_checks)} FROM facts.sentences WHERE NOT gone"
    dropped = dict(lake.query(f"SELECT dropped_by, count(*) FROM ({rows}) GROUP BY dropped_by"))
    dropped["same_text"] = total - sum(dropped.values())
    steps = ["same_text", *(check.name for check in plan.sentence_checks)]
    if plan.recipe.sentence_duplicates is not None:
        steps.append("duplicate")
        grouped = f"FROM {surviving(plan)} WHERE duplicates IS NOT NULL"
        dropped["duplicate"] = lake.query(f"SELECT count(*) - count(DISTINCT duplicates) {grouped}")[0][0]
    return _steps(steps, dropped, total)


def _steps(rules: list[str], dropped: dict[str, int], total: int) -> list[tuple[str, int, int]]:
    """Return (rule, items in, items dropped) for ``rules`` in order, starting from ``total`` items."""
    steps = []
    for rule in rules:
        n = dropped.get(rule, 0)
        steps.append((rule, total, n))
        total -= n
    return steps
