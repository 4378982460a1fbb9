"""Declare the commands on dataset versions, such as `browse`, `report`, `recut`, `diff` and `export`."""

from typing import Any

from pairmill.flows.command.option_types import above_0, from_0, worker_count
from pairmill.flows.command.question_arguments import add_question
from pairmill.flows.command.shared_options import (
    add_command,
    export_format_option,
    lake_option,
    removal_options,
    text_or_json_option,
)


def add_versions(commands: Any) -> None:
    """Add these commands to the parser."""
    _browse(commands)
    _report(commands)
    _recut(commands)
    _import_scores(commands)
    _diff(commands)
    _calibrate(commands)
    _versions(commands)


def _recut(commands: Any) -> None:
    """Add the `recut` command."""
    text = "publish a version by other rules, from the scores that are there"
    command = add_command(commands, "recut", "pairmill_recut:recut", text)
    command.add_argument("dataset", metavar="NAME[@V]", help="the version whose recipe is changed")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                         help="a rule, balance.cap, association.max_uses or .at_least")  # fmt: skip
    command.add_argument("--name", default="", metavar="NAME", help="publish under this name; default: the version's")
    command.add_argument("--dry-run", action="store_true",
                         help="publish nothing; show needs, rates of rules and marginal images")  # fmt: skip
    lake_option(command)
    text_or_json_option(command)


def _import_scores(commands: Any) -> None:
    """Add the `import-scores` command."""
    text = "take other people's scores of pictures into the lake, for rules to read"
    command = add_command(commands, "import-scores", "pairmill_import_scores:import_file", text)
    command.add_argument("file", metavar="FILE", help="a Parquet file with a column that names pictures, and numbers")
    command.add_argument("--key", required=True, choices=("sha256", "image_id", "url"), help="the column of names")
    command.add_argument("--name", required=True, metavar="NAME", help="the name under which rules read the score")
    command.add_argument("--column", default="", metavar="COLUMN", help="the column of numbers; default: --name")
    lake_option(command)
    text_or_json_option(command)


def _diff(commands: Any) -> None:
    """Add the `diff` command."""
    command = add_question(commands, "diff", "pairmill_diff:diff")
    command.add_argument("--fail-if", action="append", default=[], metavar="CONDITION",
                         help='exit with status 1 if "lost > 5%%" or the like; gained, lost or changed; '
                         "may repeat")  # fmt: skip


def _calibrate(commands: Any) -> None:
    """Add the `calibrate` command."""
    command = add_question(commands, "calibrate", "pairmill_calibrate:calibrate")
    command.add_argument("--draw", type=above_0, default=0, metavar="N", help="draw N pairs into a CSV, to be judged")
    command.add_argument("--to", default="", metavar="FILE", help="where --draw writes; default: labels.csv")
    command.add_argument("--labels", default="", metavar="FILE", help="read verdicts of a CSV that --draw wrote")


def _versions(commands: Any) -> None:
    """Add the commands on dataset versions: `export`, `tag`, `drop`."""
    export = add_command(commands, "export", "pairmill_export:write_export", "export a dataset as tars or Parquet")
    export.add_argument("dataset", metavar="NAME[@V]")
    export.add_argument("--to", required=True, metavar="URI", help="a new folder or s3://bucket/prefix")
    about = "realsyn: its five columns, by address; llava: JSON of conversations; obelics: interleaved documents; "
    export_format_option(export, ("realsyn", "llava", "obelics"), about)
    export.add_argument(
        "--captions", choices=("chosen", "all"), default="chosen", help="all: a column with every captioner's text"
    )
    export.add_argument("--text", default="text1", metavar="TEXT",
                        help="the text of a sample: a column; by chance: 'random(text1..text3, syn_text * 2)'; "
                        "or a sample for each: 'each(text1..text3)'")  # fmt: skip
    export.add_argument("--shuffle", type=from_0, default=None, metavar="SEED",
                        help="shuffle the whole dataset over the files; equal seeds give equal files")  # fmt: skip
    export.add_argument("--grow", action="store_true",
                        help="one folder for all versions of the recipe: new rows go into further files")  # fmt: skip
    export.add_argument("--concepts", default="", metavar="NAMES.txt",
                        help="class names, one a line, whose losses the Croissant description lists")  # fmt: skip
    tag = add_command(commands, "tag", "pairmill_versions:tag", "name a dataset version; NAME@TAG then means it")
    tag.add_argument("dataset", metavar="NAME[@V]")
    tag.add_argument("name", metavar="TAG", help="such as release-1; the dataset's own")
    tag.add_argument("--remove", action="store_true", help="remove this name of the version instead")
    drop = add_command(commands, "drop", "pairmill_versions:drop", "delete a dataset version; scores and exports stay")
    drop.add_argument("dataset", metavar="NAME@V", help="the very version, by its number")
    removal_options(drop)
    for command in (export, tag, drop):
        lake_option(command)


def _browse(commands: Any) -> None:
    """Add the `browse` command."""
    command = add_command(commands, "browse", "pairmill_browse:browse", "show a lake in a web browser on this machine")
    command.add_argument("--port", type=worker_count, default=8765, metavar="N",
                         help="port on 127.0.0.1; 0 takes any free one; default: 8765")  # fmt: skip
    lake_option(command)


def _report(commands: Any) -> None:
    """Add the `report` command."""
    report = add_command(commands, "report", "pairmill_report:report", "write the HTML report of a dataset version")
    report.add_argument("dataset", metavar="NAME[@V]")
    report.add_argument("--to", default="", metavar="FILE", help="also copy it to a file or folder")
    report.add_argument("--open", action="store_true", help="show it in a web browser")
    lake_option(report)
