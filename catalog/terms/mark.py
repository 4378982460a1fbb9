"""Name the marker file that distinguishes a folder made by Pairmill (a lake, an export) from a source of documents."""

# The leading dot makes other programs that read the folder skip the file.
MARK = ".pairmill"
# Content of the marker file in a lake; in an export it is JSON that identifies the lake and the dataset.
LAKE_TEXT = "The data of a Pairmill lake."
# Former name of the marker file on S3. An image's caption file may have the same name, hence the size is compared too.
FORMER_S3_MARK, FORMER_S3_MARK_BYTES = "lake.txt", len(LAKE_TEXT) + 1
LAKE_CATALOG, LAKE_DATA = "catalog.sqlite", "data/main"
EXPORT_LISTS = (".manifest.json", ".progress.json")
# Without the dot, `datasets` took the manifest for the export's only row.
FORMER_EXPORT_LISTS = ("manifest.json", "progress.json")
EXPORT_FILE = r"-v\d+-\d{6}\.(tar|parquet|json)"
