"""List the tables from which a takedown deletes no row. Each other table is in `removed_by` of table_meanings.yaml."""

# By the reason why its rows may stay.
NOT_REMOVED: dict[str, tuple[str, ...]] = {
    "pairs lose texts or go, by `catalog.upkeep.amended_versions`": ("pairs",),
    "the units' addresses keep them from being read again": ("inputs", "rereads"),
    "they keep items out, or prove what was removed": ("bans", "taken_bans", "takedowns", "amended_versions",
                                                       "amended_pairs"),
    "computed over all items, of which none can be read from it": (
        "centroids", "word_counts", "word_probabilities", "noun_counts", "tag_words", "thresholds", "funnel",
        "wrong_pairs", "proofs",
    ),
    "about work and versions, not items": (
        "partitions", "scorers", "runs", "run_recipes", "commits", "waves", "usage", "unbelieved_usage", "probes",
        "exports", "datasets", "dataset_captioners", "dropped_versions", "judgement_samples", "file_digests",
        "schema_version",
    ),
}  # fmt: skip
