"""Export the types of all answers to questions about a lake, and the queries that only pages and runs ask."""

# ruff: noqa: F401 (for others to import)

from pairmill.catalog.pending.quarantine import FaultCount, quarantined_share
from pairmill.catalog.queries.captioned import by_status
from pairmill.catalog.queries.compare.version_diff import Difference, Spread, VersionDiff, changed_ids, version_diff
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, PublishedVersion
from pairmill.catalog.queries.edit_preview import EditPreview, marks_on
from pairmill.catalog.queries.explain.explanation import Explanation, ItemPage
from pairmill.catalog.queries.explain.why import Facts, Scope
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.queries.figures.histogram import Histogram
from pairmill.catalog.queries.figures.lake_status import LakeStatus, StepUsage
from pairmill.catalog.queries.figures.proofs import Proof
from pairmill.catalog.queries.gallery.gallery_query import (
    FACETS,
    Choice,
    Concept,
    Gallery,
    GalleryPage,
    ImageSet,
    SortOrder,
)
from pairmill.catalog.queries.gallery.gallery_views import RuleView, beside_predicate
from pairmill.catalog.queries.gallery.image_vectors import ImageVectors, image_vectors
from pairmill.catalog.queries.judge.judged_samples import MOST_JUDGED, JudgedSample, JudgedThreshold, judged_samples
from pairmill.catalog.queries.judge.judging import VersionJudging
from pairmill.catalog.queries.sql.sql_answer import Relation
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable
from pairmill.catalog.write.acts import Act
from pairmill.catalog.write.judgement_log import DrawnSample
from pairmill.flows.api.picture_acts import StoredAct
from pairmill.tasks.recut import CutTrial
