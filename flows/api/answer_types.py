"""Export the types of all answers to questions about a lake, for annotations and JSON schemas."""

# ruff: noqa: F401 (for others to import)

from pairmill.catalog.pending.quarantine import FaultCount
from pairmill.catalog.queries.compare.version_diff import Difference, Spread, VersionDiff
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, PublishedVersion
from pairmill.catalog.queries.edit_preview import EditPreview
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
from pairmill.catalog.queries.gallery.gallery_views import RuleView
from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.catalog.queries.judge.judged_samples import MOST_JUDGED, JudgedSample, JudgedThreshold
from pairmill.catalog.queries.judge.judging import VersionJudging
from pairmill.catalog.queries.sql.sql_answer import Relation
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable
from pairmill.catalog.write.acts import Act
from pairmill.catalog.write.judgement_log import DrawnSample
from pairmill.flows.api.picture_acts import StoredAct
from pairmill.tasks.recut import CutTrial
