"""Declare all commands of the command line: function, help, example and options of each."""

import inspect
from dataclasses import replace

from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.question import Question, questions_of
from pairmill.flows.command import option_types
from pairmill.flows.command.command_parser import EITHER, Command, CommandParser, Option, ShowVersion
from pairmill.flows.command.option_types import above_0, amount, cost, from_0, minutes, network, numbers, share

GOES_ON = "stopped. What was finished is committed; the same command again goes on from there."


def _group_options(title: str, *options: Option) -> tuple[Option, ...]:
    """Return options that the help lists below a title of their own."""
    return tuple(replace(each, group=title) for each in options)


RECIPE = Option("recipe", "a recipe (folder, captions, 15m, 30m, 100m, demo) or a YAML file", "RECIPE")
DATASET = Option("dataset", "a dataset version, or the newest of a name", "NAME[@V]")
LAKE = Option("--lake", "the lake's folder or its lake.yaml; default PAIRMILL_LAKE, then lake/ (now %(default)s)",
              "DIR")  # fmt: skip
SOURCE = Option("--source", "folder, file, s3://bucket/prefix or https://host/list, also as FORMAT:PLACE", "URI",
                repeats=True)  # fmt: skip
MODELS = Option("--models", "'demo' swaps in the small models that ship", choices=("recipe", "demo"))
SET = Option("--set", "override a setting of the recipe: --set balance.cap=20", "KEY=VALUE", repeats=True)
WITH = Option("--with", "add a pack of rules: web-clean, or a YAML file of images, sentences, candidates", "PACK",
              repeats=True, more={"dest": "packs"})  # fmt: skip
YES = Option("--yes", "download models without asking; so does an output that is no terminal")
TEXT_OR_JSON = Option("--format", "json: one object, for scripts", choices=("table", "json"))
ROWS = ("table", "csv", "spreadsheet", "json")
NO_FORMULA = "spreadsheet: CSV in which no text can be a formula"
FILES = ("webdataset", "parquet", "texts")
ABOUT_FILES = "webdataset: tars of .jpg, .txt and .json; parquet: tables with the pictures; texts: the same without"

COMPUTE = (
    *_group_options(
        "where it runs; any choice gives the same dataset",
        Option("--workers", "worker processes; 0 means one per CPU", "N", option_types.worker_count, 0),
        Option("--model", "a model's resources: clip:gpus=0.25,replicas=1-8,feeders=4, on a cluster's GPUs of one kind "
               "captioner:accelerator=H100, or behind endpoints "
               "captioner:key=VARIABLE,connections=64,prompt_price=0.15,answer_price=0.6", "NAME:SIZES",
               option_types.model_sizes, repeats=True),
        Option("--max-cost", "the most that generated texts may cost, by the prices of --model", "SUM", cost, 0.0),
        Option("--ray", "a Ray cluster ('auto' finds this machine's), or 'local' to start Ray here", "ADDRESS"),
        Option("--allow-address", "also fetch from this private network, such as 10.1.0.0/16", "CIDR", network,
               repeats=True),
        Option("--allow-empty", "publish a version without a pair too, instead of ending with exit status 3"),
    ),
    *_group_options(
        "where it stops, at a commit; the same command again goes on",
        Option("--max-hours", "the most hours by the clock", "N", amount, 0.0),
        Option("--max-gpu-hours", "the most hours of work on GPUs, times the GPUs of a worker", "N", amount, 0.0),
        Option("--max-rows", "the most rows written, over all tables", "N", amount, 0.0),
        Option("--max-gigabytes", "the most gigabytes written to the lake", "N", amount, 0.0),
        Option("--wait", "wait so long while another run writes to the lake", "MINUTES", minutes, 0.0),
        Option("--stall-minutes", "end workers of a stage that finishes no row for so long", "N", minutes, 60),
    ),
)  # fmt: skip
REMOVAL = (
    Option("--dry-run", "only say what would go"),
    Option("--yes", "do not ask"),
    Option("--report", "also write the report of the removal, as JSON", "FILE"),
    LAKE,
)

COMMANDS: dict[str, tuple[Command, ...]] = {
    "curate": (
        Command("start", "pairmill_start:start",
                "Look at a folder, propose recipe and models, run 200 pictures of it, and show what came out.",
                "photos", (
            Option("source", "folder, file, s3://bucket/prefix or https://host/list, also as FORMAT:PLACE", "FOLDER"),
            Option("--to", "a new folder for the sample; the same one goes on", "DIR", default="pairmill-start"),
            Option("--yes", "ask nothing, take the proposals; so does an output that is no terminal"), LAKE,
        ), interrupted=GOES_ON),
        Command("demo", "pairmill_demo:demo", "Make a small world of pages and curate it, in a minute.",
                "--to first-try", (
            Option("--to", "a new folder for the pages and the lake", "DIR", default="pairmill-demo"),
            Option("--drawn", "draw the pictures, as without the models for photographs: pip install 'pairmill[demo]'"),
            SET, *COMPUTE,
        ), interrupted=GOES_ON),
        Command("preflight", "pairmill_preflight:preflight",
                "Run a sample, and forecast yield, time, disk, memory and cost of a run.",
                "30m --source pages --sample 2000", (
            RECIPE,
            Option("--sample", "pictures to run, 50 to 5000", "N", option_types.sample_size, 5000),
            SOURCE, LAKE, MODELS, YES, WITH, SET, *COMPUTE, TEXT_OR_JSON,
        )),
        Command("run", "pairmill_run:run", "Curate a dataset in this process.", "30m --source pages --lake lake", (
            Option("--dry-run", "count what is pending, by step, and do no work", group=EITHER),
            Option("--retry", "first retry what is quarantined for this reason; then only --source is read", "REASON",
                   group=EITHER),
            RECIPE, SOURCE, LAKE, MODELS, YES, WITH, SET, *COMPUTE,
        ), interrupted=GOES_ON),
        Command("recaption", "pairmill_recaption:recaption",
                "Caption every picture of a folder or lake, by the recipe captions.", "--source photos --to captions", (
            Option("recipe", "use this recipe's first captioner, without its rules", "RECIPE", default="captions",
                   more={"nargs": "?"}),
            SOURCE, LAKE, MODELS, YES, SET,
            Option("--to", "also export the captions, to a folder or s3://bucket/prefix", "URI"),
            Option("--format", f"{ABOUT_FILES}; default: webdataset", choices=FILES),
            Option("--retry", "retry the pictures quarantined for this reason", "REASON"),
            Option("--approve-first", "show the first 200 captions and ask whether to continue"),
            *COMPUTE,
        ), interrupted=GOES_ON),
    ),
    "look": (
        Command("browse", "lake_commands:browse", "Show a lake in a web browser on this machine.", "--lake lake", (
            Option("--port", "port on 127.0.0.1; 0 takes any free one", "N", option_types.worker_count, 8765), LAKE,
        )),
        Command("report", "version_commands:report", "Write the HTML report of a dataset version.", "30m@3 --open", (
            DATASET,
            Option("--to", "also copy it to a file or folder", "FILE"),
            Option("--open", "show it in a web browser"), LAKE,
        ), lasts=False),
    ),
    "versions": (
        Command("recut", "version_commands:recut", "Publish a version by other rules, from the scores that are there.",
                "30m@3 --set balance.cap=20", (
            replace(DATASET, about="the version whose recipe is changed"),
            Option("--recipe", "take the rules and other settings of the cut from this recipe", "RECIPE"), WITH,
            Option("--set", "a rule (a new one too), balance.cap, splits, association.max_uses or .at_least",
                   "KEY=VALUE", repeats=True),
            Option("--try", "publish nothing; show what this rule would drop, and ten pictures on either side", "RULE",
                   more={"dest": "tried"}),
            Option("--name", "publish under this name; default: the version's", "NAME"),
            Option("--dry-run", "publish nothing; show needs, rates of rules and marginal images"), LAKE, TEXT_OR_JSON,
        )),
        Command("edit", "pairmill_edit:edit",
                "Change texts of pairs; leave out, keep or tag pictures; without an edit, list the edits.",
                "30m --find 'photo of' --replace '' --dry-run", (
            replace(DATASET, about="the dataset; a version to try it on"),
            Option("--field", "caption, syn_text, alt_text, or text1 and so on", "FIELD", default="caption"),
            Option("--find", "replace this text by --replace, also in texts that are made later", "TEXT", default=None),
            Option("--regex", "the same for a regular expression of RE2", "REGEX", default=None),
            Option("--replace", "the replacement; \\1 is the first group of --regex", "TEXT", default=None),
            Option("--prefix", "begin every text with this, also texts that are made later", "TEXT", default=None),
            Option("--table", "new texts: .parquet, .csv or .jsonl with sha256, image_id or url, and FIELD or text",
                   "FILE", default=None),
            Option("--text", "the new text of --picture", "TEXT", default=None),
            Option("--leave-out", "drop pictures from the next version on"),
            Option("--keep", "keep pictures whatever a rule says"),
            Option("--tag", "add this tag to pictures", "WORD", default=None),
            Option("--untag", "take this tag from pictures", "WORD", default=None),
            Option("--picture", "the picture, named as `why` takes it", "ITEM", default=None),
            Option("--list", "the pictures of this .parquet, .csv or .jsonl, by sha256, image_id or url", "FILE",
                   default=None),
            Option("--where", "the pictures of the version that pass this rule", "RULE", default=None),
            Option("--undo", "undo this edit; without an id the newest", "ID", default=None,
                   more={"nargs": "?", "const": ""}),
            Option("--dry-run", "store nothing; show what it would change"), LAKE,
        ), lasts=False),
        Command("import-scores", "version_commands:import_file",
                "Take other people's scores of pictures into the lake, for rules to read.",
                "laion.parquet --key url --name aesthetic", (
            Option("file", "a Parquet file with a column that names pictures, and numbers", "FILE"),
            Option("--key", "the column of names", choices=("sha256", "image_id", "url"), is_required=True),
            Option("--name", "the name under which rules read the score", "NAME", is_required=True),
            Option("--column", "the column of numbers; default: --name", "COLUMN"), LAKE, TEXT_OR_JSON,
        )),
        Command("convert-head", "version_commands:convert_file",
                "Convert a head over CLIP's vectors, such as LAION's aesthetic predictor, for a recipe's `heads`.",
                "sac+logos+ava1-l14-linearMSE.pth --clip open_clip:ViT-L-14/openai --to aesthetic.safetensors", (
            Option("file", "a PyTorch or safetensors file with weight and bias, or layers.N.weight and .bias", "FILE"),
            Option("--clip", "the CLIP whose vectors it reads", "SPEC", is_required=True),
            Option("--to", "the file to write, NAME.safetensors", "FILE", is_required=True),
            Option("--activation", "between layers whose numbers leave a gap", choices=("none", "relu")),
            Option("--output", "of the last layer", choices=("none", "sigmoid")),
        )),
        Command("diff", "ask:ask"),
        Command("calibrate", "answer_texts:calibrate", options=(
            Option("--draw", "draw N pairs into a CSV, to be judged", "N", above_0, 0),
            Option("--to", "where --draw writes; default: labels.csv", "FILE"),
            Option("--labels", "read verdicts of a CSV that --draw wrote", "FILE"),
        )),
        Command("prove", "pairmill_prove:prove",
                "Train small heads on a version and on the raw pool, and tell which finds more again.",
                "30m@3 --judge open_clip:ViT-B-16/laion2b_s34b_b88k", (
            replace(DATASET, more={"nargs": "+"}, about="a dataset version, or several"),
            Option("--judge", "a CLIP that made none of their scores", "SPEC"),
            Option("--seeds", "paired trainings, 8 or more; more narrow the intervals", "N", above_0, 8),
            Option("--right", "the pictures whose own text is known to be right, as --list of `edit`: an oracle",
                   "FILE"),
            Option("--rules", "also price each rule on pictures, against dropping as many by lot"),
            Option("--datacomp", "also write shards there, and a script that trains a CLIP by DataComp's `small`",
                   "FOLDER"),
            LAKE, TEXT_OR_JSON,
        ), interrupted="stopped. The features are kept; the same command again goes on from there."),
        Command("export", "version_commands:write_export", "Export a dataset as tars, Parquet or a folder of pictures.",
                "30m --to out/tars", (
            replace(DATASET, metavar="NAME[@V][:WEIGHT]", more={"nargs": "+"},
                    about="a dataset version, or several: a mixture by their weights, the shares of its pairs"),
            Option("--to", "a new folder or s3://bucket/prefix", "URI", is_required=True),
            Option("--format", f"{ABOUT_FILES}; realsyn: its five columns, by address; llava: JSON of conversations; "
                   "obelics: interleaved documents; folder: pictures with a .txt beside each; card: its card alone; "
                   "default: webdataset", choices=(*FILES, "realsyn", "llava", "obelics", "folder", "card")),
            Option("--captions", "all: a column with every captioner's text", choices=("chosen", "all")),
            Option("--text", "the text of a sample: a column; by chance: 'random(text1..text3, syn_text * 2)'; or a "
                   "sample for each: 'each(text1..text3)'", "TEXT", default="text1"),
            Option("--shuffle", "shuffle the whole dataset over the files; equal seeds give equal files", "SEED",
                   from_0, None),
            Option("--pictures", "of a folder: copy; link: hard links to a local source's files; stay: only write .txt "
                   "files into the source's folder; default: copy", choices=("copy", "link", "stay")),
            Option("--trigger", "of a folder: a word before each caption that lacks it", "WORD"),
            Option("--prefix", "of a folder: text directly before each caption", "TEXT"),
            Option("--suffix", "of a folder: text directly behind each caption", "TEXT"),
            Option("--bucket", "of a folder: resize to this side's area, sides in steps of 64; default: no change",
                   "PIXELS", above_0, None),
            Option("--metadata", "of pictures: stripped of GPS, EXIF, XMP and the like, pixels untouched; or original, "
                   "the source's bytes; default: stripped", choices=("stripped", "original")),
            Option("--contact", "in the card: a mail or web address at which to ask for a removal", "ADDRESS"),
            Option("--split", "take this split alone", "SPLIT"),
            Option("--size", "take this nested size, with the smaller ones in it", "SIZE"),
            Option("--pairs", "draw so many pairs; default: all, or the largest mixture", "N",
                   option_types.pair_count, None),
            Option("--list", "take only the pictures of this .parquet, .csv or .jsonl, by sha256, image_id or url",
                   "FILE", default=None),
            Option("--seed", "of the draw of --pairs or a mixture; equal seeds draw equal pairs", "SEED", from_0, 0),
            Option("--grow", "one folder for all versions of the recipe: new rows go into further files"),
            Option("--concepts", "class names, one a line, whose losses the Croissant description lists", "NAMES.txt"),
            LAKE,
        )),
        Command("tag", "version_commands:tag", "Name a dataset version; NAME@TAG then means it.", "30m@3 release-1", (
            DATASET,
            Option("name", "such as release-1; the dataset's own", "TAG"),
            Option("--remove", "remove this name of the version instead"), LAKE,
        )),
        Command("drop", "removals:drop", "Delete a dataset version; scores and exports stay.", "30m@2", (
            Option("dataset", "the very version, by its number", "NAME@V"), *REMOVAL,
        )),
    ),
    "operate": (
        Command("doctor", "pairmill_doctor:doctor", "Test this machine or a Ray cluster, and name the remedies.",
                "30m", (
            Option("recipe", "also look for this recipe's models", "RECIPE", more={"nargs": "?"}),
            Option("--ray", "examine each machine of a Ray cluster instead; 'auto' finds this machine's", "ADDRESS"),
            SOURCE, LAKE, MODELS, SET, Option("--format", NO_FORMULA, choices=ROWS),
        ), lasts=False),
        Command("check", "lake_commands:check", "Compare a lake's rows with its files.", "--lake lake --repair", (
            Option("--deep", "also hash every picture, and look for contents that were scored twice"),
            Option("--repair", "make again what is damaged, remove what is doubled, finish removals"),
            Option("--lose-rows", "let --repair remove rows that nothing can make again"), LAKE,
        ), interrupted="stopped. The same command again starts over; what it repaired is committed."),
        Command("maintain", "lake_commands:maintain", "Join small files, remove what nobody needs.", "--lake lake", (
            Option("--days", "keep snapshots of these days; dataset versions always stay", "N", above_0, 7), LAKE,
        ), interrupted="stopped. The same command again goes on from there."),
        Command("takedown", "removals:takedown", "Remove pictures or documents from a lake, and keep them out.",
                "https://example.org/fox.jpg --dry-run --lake lake", (
            Option("item", "a picture or document as `why` takes it: an id, a path, an address, an item of the gallery",
                   "ITEM", default=None, more={"nargs": "*"}),
            Option("--url", "a picture's or document's address; with a slash at its end, all below it", "URL",
                   repeats=True),
            Option("--domain", "a host, with its subdomains", "HOST", repeats=True),
            Option("--image", "this very picture", "FILE", repeats=True),
            Option("--like", "pictures that look like this one; lists them", "FILE"),
            Option("--document", "a document, by its id", "ID", repeats=True),
            Option("--reason", "stands in the report", "TEXT", default="asked by the owner"),
            REMOVAL[0],
            Option("--yes", "do not ask; with --like, N is the number of pictures that it listed", "N", int, None,
                   more={"nargs": "?", "const": -1}),
            *REMOVAL[2:],
        ), interrupted="stopped. The same command again, or `pairmill maintain`, finishes it."),
        Command("import-bans", "removals:import_bans", "Ban the pictures of a list of hashes, and remove those here.",
                "list.txt --kind md5 --lake lake", (
            Option("file", "a hash a line; what follows a comma or space is ignored", "FILE"),
            Option("--kind", "of the hashes; phash is Pairmill's own, in 16 hex digits",
                   choices=("sha256", "md5", "pdq", "phash"), is_required=True),
            Option("--reason", "stands in the report", "TEXT", default="on a list"), *REMOVAL,
        ), interrupted="stopped. The same command again, or `pairmill maintain`, finishes it."),
        Command("forget", "removals:forget",
                "Remove the scores of one scorer from a lake, after saying what they decide.",
                "--scorer 5d059c78 --dry-run --lake lake", (
            Option("--scorer", "its digest in `scorers`, or how it begins", "DIGEST", is_required=True), *REMOVAL,
        ), interrupted="stopped. If the scores are gone, `pairmill maintain` finishes it."),
        Command("up", "pairmill_up:up", "Start Prefect's server, and serve the deployments there.",
                "--port 4201", (
            Option("--port", "of the server; default: PREFECT_SERVER_API_PORT, else 4200, or a free one", "N", above_0,
                   0),
            LAKE,
        ), interrupted=GOES_ON),
    ),
    "set up": (
        Command("recipe", "pairmill_recipe:recipe", "Print a recipe, or the JSON schema of all recipes.", "show 30m", (
            Option("what", "show: a recipe, to start one of your own from; schema: by it editors complete and check "
                   "recipes", choices=("show", "schema")),
            replace(RECIPE, more={"nargs": "?"}),
        ), lasts=False),
        Command("mcp", "lake_commands:mcp",
                "Answer an agent about a lake by the Model Context Protocol, over stdin and stdout.", "--lake lake",
                (LAKE,)),
        Command("completion", "completion:completion", "Print a shell's code for completion at Tab.", "bash", (
            Option("shell", 'bash, zsh: eval "$(pairmill completion bash)"', choices=("bash", "zsh", "fish")),
        ), lasts=False),
    ),
}  # fmt: skip

# Name of the value in the help, and parser, of the questions' arguments.
VALUES = {"dataset": ("NAME[@V]", str), "names": ("NAMES.txt", str), "query": ("SQL", str), "wrong": ("SHARE", share),
          "confidence": ("SHARE", share), "candidates": ("NUMBERS", numbers), "most": ("N", above_0)}  # fmt: skip


def commands_by_group() -> dict[str, list[Command]]:
    """Return all commands, those of questions about a lake too, by the heading under which the help lists them."""
    asked = {each.command: each for each in questions_of(OpenLake) if each.command}
    found: dict[str, list[Command]] = {}
    for group, commands in COMMANDS.items():
        found[group] = [_asking(asked.pop(each.name), each) if each.name in asked else each for each in commands]
    found["look"] += [_asking(each, Command(name, "ask:ask")) for name, each in asked.items()]
    return found


def _asking(asked: Question, of: Command) -> Command:
    """Return the command ``of`` a question, with help, example and arguments of the question's method."""
    forms = ROWS if asked.is_list else ("table", "json")
    about = f"{NO_FORMULA}; schema: that of the JSON" if asked.is_list else "schema: that of the JSON"
    options = [_argument(each, asked) for each in asked.parameters]
    options += [LAKE, Option("--format", about, choices=(*forms, "schema")), *of.options]
    example = asked.example.removeprefix(f"pairmill {asked.command}").strip()
    presets = {"question": asked}
    return replace(of, about=asked.about, example=example, options=options, lasts=False, presets=presets)


def _argument(of: inspect.Parameter, asked: Question) -> Option:
    """Convert a parameter of a question's method to an option; a required one is positional."""
    about, is_required = asked.help_of(of.name), of.default is of.empty
    about = about[:1].lower() + about[1:].rstrip(".").replace("%", "%%")
    if of.annotation is bool:
        return Option(f"--{of.name.replace('_', '-')}", about)
    metavar, parse = VALUES.get(of.name, (of.name.upper(), str))
    name = of.name if is_required else f"--{of.name}"
    default = f"{of.default:.0%}" if parse is share and not is_required else of.default  # as it is typed
    return Option(name, about, metavar, parse, None if is_required else default, is_required=is_required)


def parser() -> CommandParser:
    """Build the parser of all commands."""
    about = "Curate image-text datasets. Start with: pairmill start FOLDER, or pairmill demo"
    top = CommandParser(prog="pairmill", description=about)
    top.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    parsers = top.add_subparsers(title="commands", required=True, metavar="COMMAND", help="one of those below")
    found, lines = commands_by_group(), []
    width = max(len(each.name) for commands in found.values() for each in commands) + 2
    for group, commands in found.items():
        lines += [f"{group}:", *(f"  {each.name:<{width}}{each.about.rstrip('.')}" for each in commands), ""]
        for each in commands:
            each.add_to(parsers)
    top.epilog = "\n".join([*lines, "`pairmill COMMAND --help` shows a command's options and an example."])
    return top
