"""Implement `pairmill start`: look at a folder, propose a run, run a sample, show the forecast and the gallery."""

import json
import shlex
import sys
import webbrowser
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import MARK
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.flows.command.pairmill_demo import make_photo_models
from pairmill.flows.command.pairmill_preflight import print_forecast, show_in
from pairmill.flows.command.pairmill_run import ask_downloads
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.run.settings import Compute, load_recipe, load_runnable

if TYPE_CHECKING:
    from pairmill.flows.preflight.first_look import FirstLook

ANSWERS = "start.json"
_STORED = TypeAdapter(dict[str, str])  # question -> answer


def start(args: Namespace) -> int:
    """Look at a source, ask for recipe, models and lake, run a sample of it, print the forecast, and serve its gallery.

    Answers and sample stay in the folder ``--to``: a second call goes on. Without a terminal, and with ``--yes``, the
    proposals are taken, and the gallery's command is printed. Raises PairmillError if ``--to`` has another source's.
    """
    screen, folder = console(), Path(args.to)
    answers = _answers(folder, args.source)
    with screen.status(f"looking at {shown(args.source)}"):
        from pairmill.catalog.lake.literals import work_without_pandas
        from pairmill.flows.preflight import first_look  # torch, 3 s
        from pairmill.flows.preflight.preflight import FEW_PICTURES, preflight

        work_without_pandas()
        seen = first_look.look(args.source, folder)
        (folder / MARK).touch()  # so that a source around it does not read it
    _print_look(screen, args.source, seen)
    asks = screen.is_terminal and sys.stdin.isatty() and not args.yes

    def ask(name: str, found: first_look.Proposal) -> str:
        """Return the answer to a question: an earlier one, what is typed, or the proposal."""
        value = answers.get(name, found.value)
        screen.print(f"{name:<8}{shown(value)}: {shown(found.reason if value == found.value else 'as answered')}")
        if name not in answers:
            if asks:
                screen.print(f"        Enter takes it, or name another {name}: ", end="")
                sys.stdout.flush()
            answers[name] = (asks and sys.stdin.readline().strip()) or found.value
            with whole_file(folder / ANSWERS) as new:
                new.write_text(json.dumps(answers), encoding="utf-8")
        return answers[name]

    found = first_look.propose_recipe(seen)
    name = ask("recipe", found)
    settings = found.settings if name == found.value else {}
    load_recipe(name, settings)  # before the next question
    found = first_look.propose_models(name, args.lake, (folder / "models").resolve())
    models = ask("models", found)
    settings |= found.settings if models == found.value else {}
    if models == "photographs":
        with screen.status("making the models of the extra [demo]"):
            make_photo_models((folder / "models").resolve())
    recipe, _ = load_runnable(name, settings, "demo" if models == "demo" else "recipe")  # the run line tells its notes
    ask_downloads(recipe, args.yes, screen)
    with screen.status("running a sample") as status:
        compute = Compute()  # pyright: ignore[reportCallIssue]
        forecast = preflight(recipe, [args.source], args.lake, compute, FEW_PICTURES, show_in(status), folder)
    print_forecast(forecast, screen)
    words = ["pairmill", "run", name, "--source", args.source, "--lake", args.lake]
    words += ["--models", "demo"] if models == "demo" else []
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    screen.print(f"\nall of it  {shown(shlex.join(words))}")
    sample = str(folder / "sample")
    screen.print(f"look       {shown(shlex.join(['pairmill', 'browse', '--lake', sample]))}")
    if screen.is_terminal:
        _browse(sample)
    return 0


def _answers(folder: Path, source: str) -> dict[str, str]:
    """Return the answers of an earlier call, else the source alone. Raises PairmillError if the folder has others."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {"source": source}
    try:
        found = _STORED.validate_json((folder / ANSWERS).read_bytes())
    except (OSError, ValidationError):
        found = {} if (folder / "none").is_dir() else None  # ended before the first answer
    if found is None or found.get("source", source) != source:
        held = f"the start of '{found['source']}'" if found else "other files"
        raise PairmillError(f"--to '{folder}' holds {held}; name a new folder.")
    return found | {"source": source}


def _print_look(screen: Console, source: str, seen: "FirstLook") -> None:
    """Print what a source holds: units by format, captions beside pictures, languages."""
    kinds = ", ".join(f"{n:,} of {name}" for name, n in seen.units.items())
    texts = seen.texts
    captions = f"{texts.captioned:,} of the first {texts.pictures:,} pictures have a text of their own"
    languages = ", ".join(f"{name} {share:.0%}" for name, share in seen.languages) or "no sentence was read"
    screen.print(f"{shown(source)}: {shown(kinds)}; {captions}; languages: {languages}")


def _browse(lake: str) -> None:
    """Serve the lake's gallery until Ctrl-C, and show it in a web browser if one is known."""
    from pairmill.flows.browse.application import serve

    def announce(address: str) -> None:
        print(f"shown at {address}; Ctrl-C ends it.", flush=True)
        webbrowser.open(address)

    serve(lake, 0, announce)
