"""Implement `pairmill export`: write a dataset's files, and describe them."""

from argparse import Namespace

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.command.ask import name_list


def write_export(args: Namespace) -> int:
    """Export a dataset's files; take the lease only to record them in ``exports``."""
    from pairmill.flows.command.display import Display
    from pairmill.flows.command.terminal import console
    from pairmill.tasks.release.export.export import export
    from pairmill.tasks.release.export.export_forms import OF_DOCUMENTS
    from pairmill.tasks.run.place.progress import Progress

    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake, Display(console()) as display:
        opened = OpenLake(lake)
        dataset = opened.dataset(args.dataset).version
        gaps = opened.concepts(args.dataset, name_list(args.concepts)) if args.concepts else []

        def show(done: int, total: int) -> None:
            display.progress(Progress(f"export {dataset}", done, total, "rows"))

        place = (dataset.name, dataset.version, args.to, args.format)
        chosen = {"captions": args.captions, "text": args.text, "shuffle": args.shuffle, "grow": args.grow}
        found = export(lake, *place, progress=show, gaps=gaps, **chosen)
    unit = "documents" if args.format in OF_DOCUMENTS else "pairs"
    print(visible(f"{found.uri}: {found.rows:,} {unit} in {found.files:,} files, {found.bytes / 1e6:,.1f} MB"))
    return 0
