"""List the reasons for quarantining an item: a closed list, shared by ops and catalog."""

from typing import NamedTuple


class Reason(NamedTuple):
    """Meaning of a quarantine reason, and its remedy: what a user can do about it."""

    meaning: str
    remedy: str


MEANINGS: dict[str, Reason] = {
    "empty": Reason("The file, or the `data:` address, has no bytes.", "Put the file back, and run again."),
    "truncated": Reason("The bytes end too early.", "Copy the file, and run again; of a fetch: `run --retry`."),
    "undecodable": Reason("The picture's header or pixels cannot be decoded.", "Convert the file, and run again."),
    "not_an_image": Reason(
        "The first bytes are those of no picture format.",
        "None, unless a newer release reads the format: `run --retry`.",
    ),
    "too_large": Reason(
        "A page, record or picture is larger than the limit that the detail names.",
        "For pictures raise `decoding.max_bytes` and `run --retry`; split pages and records.",
    ),
    "bomb": Reason(
        "It would unpack to far more than its size.",
        "For pictures raise `ingest.max_pixels` and `run --retry`, if the source is trusted.",
    ),
    "bad_record": Reason("A record lacks what its format requires.", "Mend the record; the detail names the field."),
    "bad_encoding": Reason("A name is not UTF-8, or a text is none in its encoding.", "Rename or convert the file."),
    "unsafe_path": Reason(
        "A link leads out of the source.", "Name the folder that it leads to as a source of its own."
    ),
    "left_out": Reason(
        "Hidden files, and folders that Pairmill itself made.", "None: rename the file if it is a source."
    ),
    "missing": Reason("What a page, record or row names is not there.", "Put it back, then `run --retry`."),
    "damaged": Reason(
        "A picture's bytes have another hash than when they were stored, or a file crashes its reader.",
        "Put the file back from a copy; `run --retry`.",
    ),
    "blocked_address": Reason(
        "The address leads into a private network.",
        "If that is wanted: `run --retry blocked_address --allow-address CIDR`.",
    ),
    "opt_out": Reason(
        "The server, by `X-Robots-Tag`, or the page, by `<meta name=robots>`, asks that it is not used.", "None."
    ),
    "banned": Reason("The host or the picture is on a list of yours.", "Take it off the list."),
    "http_status": Reason(
        "The server answered with the status that the detail names.",
        "For 429 and 5xx: `run --retry`; `maintain` does too.",
    ),
    "timeout": Reason("The server, or the work on one item, took too long.", "`run --retry`."),
    "too_many_redirects": Reason("The address was redirected too often.", "None."),
    "poison": Reason("The worker process of this item alone died.", "Report it; with a newer release `run --retry`."),
    "out_of_memory": Reason(
        "The GPU had no room for the item, even alone.", "`run --retry` with a smaller model or on a larger GPU."
    ),
    "model_error": Reason("The model or its server failed on this item.", "`run --retry`."),
}  # fmt: skip
REASONS: tuple[str, ...] = tuple(MEANINGS)
