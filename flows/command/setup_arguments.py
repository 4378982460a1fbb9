"""Declare the commands around recipes, models, agents and shells, from `recipe` to `completion`."""

from typing import Any

from pairmill.flows.command.option_types import above_0
from pairmill.flows.command.shared_options import (
    add_command,
    lake_option,
)


def add_setup(commands: Any) -> None:
    """Add these commands to the parser."""
    _recipe(commands)
    _check_model(commands)
    _serve_model(commands)
    _mcp(commands)
    _completion(commands)


def _recipe(commands: Any) -> None:
    """Add `recipe show` and `recipe schema`."""
    command = add_command(
        commands, "recipe", "pairmill_recipe:show", "print a recipe, or the JSON schema of all recipes"
    )
    inner = command.add_subparsers(title="commands", required=True, metavar="COMMAND")
    about = "Print a recipe, to start one of your own from."
    show = inner.add_parser("show", help=about, description=about, allow_abbrev=False)
    show.add_argument(
        "recipe", metavar="RECIPE", help="a recipe (folder, captions, 15m, 30m, 100m, demo) or a YAML file"
    )
    show.set_defaults(command="pairmill_recipe:show", parser=show)
    about = "Print the JSON schema by which editors complete and check recipes."
    schema = inner.add_parser("schema", help=about, description=about, allow_abbrev=False)
    schema.set_defaults(command="pairmill_recipe:schema", parser=schema)


def _check_model(commands: Any) -> None:
    """Add the `check-model` command."""
    command = add_command(commands, "check-model", "pairmill_check_model:check_model",
                       "show what a captioner costs and whether its decoding is captured")  # fmt: skip
    command.add_argument("spec", metavar="MODEL", help="hf:NAME, or a folder with a model of transformers")
    command.add_argument("--processor", default="{}", metavar="SETTINGS",
                         help="picture settings as of a recipe's captioner, such as '{tiles: 1}'")  # fmt: skip
    command.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="default: bf16")
    command.add_argument("--side", type=above_0, default=448, metavar="PX",
                         help="shorter side of the pictures; default: 448")  # fmt: skip
    command.add_argument("--max-tokens", type=above_0, default=128, metavar="N",
                         help="the longest answer; default: 128")  # fmt: skip


def _serve_model(commands: Any) -> None:
    """Add the `serve-model` command."""
    command = add_command(commands, "serve-model", "pairmill_serve_model:serve_model",
                       "serve a captioner by an engine of another environment")  # fmt: skip
    command.add_argument("spec", metavar="MODEL", help="hf:NAME or hf:FOLDER")
    command.add_argument("--engine", choices=("vllm", "sglang", "transformers"), default="vllm", help="default: vllm")
    command.add_argument("--env", required=True, metavar="DIR", help="the engine's own environment of Python")
    command.add_argument("--port", type=above_0, default=8000, metavar="N", help="default: 8000, on this machine alone")
    command.add_argument("--gpus", type=above_0, default=1, metavar="N", help="GPUs that share the model; default: 1")
    command.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto",
                         help="number format of the computation; default: that of the weights")  # fmt: skip
    command.add_argument("--max-num-seqs", type=above_0, default=256, metavar="N",
                         help="texts generated at the same time; default: 256")  # fmt: skip


def _mcp(commands: Any) -> None:
    """Add the `mcp` command."""
    text = "answer an agent about a lake by the Model Context Protocol, over stdin and stdout"
    lake_option(add_command(commands, "mcp", "pairmill_mcp:mcp", text))


def _completion(commands: Any) -> None:
    """Add the `completion` command."""
    command = add_command(commands, "completion", "completion:completion", "print a shell's code for completion at Tab")
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help='bash, zsh: eval "$(pairmill completion bash)"')
