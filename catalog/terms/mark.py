"""Name the file that tells a folder made by Pairmill (a lake's, an export) from a source of documents."""

# Its name begins with a dot, so that other programs which read the folder pass it over.
MARK = ".pairmill"
# What it says in a lake; in an export it is JSON that says whose it is.
LAKE_TEXT = "The data of a Pairmill lake."
# What this file was called on S3 before; a picture's caption may be called so too, hence its size.
FORMER_S3_MARK, FORMER_S3_MARK_BYTES = "lake.txt", len(LAKE_TEXT) + 1
LAKE_CATALOG, LAKE_DATA = "catalog.sqlite", "data/main"
EXPORT_LISTS = ("manifest.json", "progress.json")
EXPORT_FILE = r"-v\d+-\d{6}\.(tar|parquet)"
