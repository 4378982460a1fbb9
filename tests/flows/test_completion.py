"""Completion at Tab, by a real bash that evaluates `pairmill completion bash`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
eval "$(pairmill completion bash)"
complete -p pairmill
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9; COMPREPLY=()
_python_argcomplete pairmill
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completions(line: str, folder: Path) -> list[str]:
    """The words that bash offers at the end of a command line."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", ASK, "bash", line], cwd=folder, env={**os.environ, "PATH": path},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    registered, *words = done.stdout.splitlines()
    assert registered.startswith("complete ") and registered.endswith("-F _python_argcomplete pairmill"), done.stderr
    return [word.strip() for word in words if word]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pairmill quar", ["quarantine"]),
        ("pairmill run --dry", ["--dry-run"]),
        ("pairmill run ", ["100m", "15m", "30m", "captions", "demo", "folder", "mine.yaml"]),
        ("pairmill run 30m --retry out", ["out_of_memory"]),
        ("pairmill run 30m --models d", ["demo"]),
        ("pairmill completion z", ["zsh"]),
        ("pairmill run 30m --source mi", ["mine.yaml"]),
    ],
)
def test_a_shell_completes(line: str, words: list[str], tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("")
    assert completions(line, tmp_path) == words


def test_datasets_are_those_of_the_lake(curated: Path, tmp_path: Path):
    assert completions(f"pairmill export --lake {curated} demo", tmp_path) == ["demo", "demo@1"]
    assert completions("pairmill export --lake nowhere demo", tmp_path) == []


@pytest.mark.parametrize(
    ("shell", "part"), [("zsh", "compdef _python_argcomplete"), ("fish", "complete --command pairmill")]
)
def test_other_shells_have_their_own_code(shell: str, part: str, tell):
    assert part in tell("completion", shell)
