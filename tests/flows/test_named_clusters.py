"""`pairmill clusters`: names, and sizes before and after the cap, against the lake's own tables."""

import json
from pathlib import Path

import pairmill as pm
from pairmill.catalog.queries.gallery.gallery_query import NamedCluster
from tests.worlds.commands import Tell
from tests.worlds.line import rows

# Images that reach the cap, by the clusters of its scorer.
REACHED = """SELECT c.cluster, count(*), count(*) FILTER (dropped_by IN ('', 'balance', 'max_uses')),
    count(*) FILTER (dropped_by = '') FROM decisions d JOIN images i ON i.image_id = d.item_id
    JOIN clusters c ON c.key = i.sha256 WHERE d.dataset = 'demo' AND version = {}
    AND c.scorer = (SELECT digest FROM scorers WHERE name = 'balance_clusters') GROUP BY ALL"""


def test_sizes_are_those_of_the_decisions_before_and_after_the_cap(curated_copy: Path, tell: Tell):
    with pm.open(curated_copy) as lake:
        lake.recut("demo@1", {"balance.cap": 2})
        found = lake.clusters("demo@2")
    truth = {row[0]: row[1:] for row in rows(curated_copy, REACHED.format(2))}
    assert {each.cluster: (each.images, each.before, each.kept) for each in found} == truth
    assert any(each.kept < each.before for each in found) and max(each.kept for each in found) <= 2
    assert [each.before for each in found] == sorted((each.before for each in found), reverse=True)
    names = {each.cluster: each.name for each in found}
    texts = dict(rows(curated_copy, "SELECT image_id, concat_ws(' ', text1, array_to_string(tags, ' ')) FROM pairs "
                                    "WHERE version = 2"))  # fmt: skip
    assert all(each.example in texts for each in found if each.kept) and any(names.values())
    place = ("clusters", "demo@2", "--lake", str(curated_copy))
    told = json.loads(tell(*place, "--format", "json", "--most", "1"))
    assert [NamedCluster(**row) for row in told] == found[:1]
    assert str(found[0].before) in tell(*place)
