"""Name the marker file that distinguishes a folder made by Pairmill (a lake, an export) from a source of documents."""

# The leading dot makes other programs that read the folder skip the file.
MARK = ".pairmill"
# Content of the marker file in a lake; in an export it is JSON that identifies the lake and the dataset.
LAKE_TEXT = "The data of a Pairmill lake."
LAKE_CATALOG, LAKE_DATA = "catalog.sqlite", "data/main"
EXPORT_LISTS = (".manifest.json", ".progress.json")
