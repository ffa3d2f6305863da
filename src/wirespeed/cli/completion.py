"""`wirespeed completion`: the scripts that make a shell complete our words, and the answers to them.

At each TAB a script runs `wirespeed` with _WIRESPEED_COMPLETE=SHELL_complete, and the line up to the
cursor in COMP_LINE. The answer has one line for each offer: its kind (`plain`, `file`, `dir`), the
whole word that would stand at the cursor, and a line about it, with tabs between them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from wirespeed.cli.options import argument, command
from wirespeed.errors import WirespeedError

VARIABLE = "_WIRESPEED_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

_SAFE = re.compile(r"[\w.,:/@%+=-]+")
"""What a shell takes as one plain word. Names of files may be anything: others are not offered."""
_OPTION = re.compile(r"--?[A-Za-z][\w-]*=")
_LONGEST_HELP = 72


@command()
@argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete verbs, options, runs, clusters and names.

    A package that is installed for the whole system brings the scripts to where the shells look for
    them; in a virtual environment they have to be named.

    \f
    Examples:
      eval "$(wirespeed completion bash)"          in ~/.bashrc
      source <(wirespeed completion zsh)           in ~/.zshrc, behind compinit
      wirespeed completion fish | source           in ~/.config/fish/config.fish

    Or once, into a file that the shell finds by itself:
      wirespeed completion bash > ~/.local/share/bash-completion/completions/wirespeed
      wirespeed completion zsh > ~/.zfunc/_wirespeed           where ~/.zfunc is in fpath
      wirespeed completion fish > ~/.config/fish/completions/wirespeed.fish
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """Of one of SHELLS."""
    return (Path(__file__).parent / "shell" / f"wirespeed.{shell}").read_text("utf-8")


def answer(root: click.Command, environ: Mapping[str, str]) -> int:
    """Print what a script has asked for; the exit code. A name that cannot be looked up is no offer."""
    shell, _, asked = environ[VARIABLE].partition("_")
    if shell not in SHELLS or asked not in ("source", "complete"):
        return 2
    if asked == "source":
        click.echo(script(shell), nl=False)
    elif text := Answer(root, environ, shell=shell).complete():
        click.echo(text.encode("utf-8", "surrogateescape"))
    return 0


class Answer(ShellComplete):
    """One question of a shell, and click's answer to it in the form that our scripts read."""

    name = "wirespeed"

    def __init__(self, root: click.Command, environ: Mapping[str, str], *, shell: str) -> None:
        super().__init__(root, {}, "wirespeed", VARIABLE)
        self._line = environ.get("COMP_LINE", "")
        self._breaks = environ.get("COMP_WORDBREAKS", "") if shell == "bash" else ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words in front of the cursor, without `wirespeed`, and the one that has been begun."""
        words = split_arg_string(self._line)
        begun = words.pop() if len(words) > 1 and not self._line[-1:].isspace() else ""
        return words[1:], begun

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[str]]":
        # click answers `--level=qu` with `quick`, and shells replace the whole word.
        option = match[0] if (match := _OPTION.match(incomplete)) and "--" not in args else ""
        try:
            found = super().get_completions(args, incomplete)
        except (WirespeedError, click.ClickException, OSError):
            return []
        offered = []
        for item in found:
            if item.type == "plain":
                item.value = option + item.value
                if not _SAFE.fullmatch(item.value):
                    continue
                item.value = item.value[self._kept(incomplete) :]
            offered.append(item)
        return offered

    def _kept(self, incomplete: str) -> int:
        """Characters that bash does not replace: up to the last `=` or `:` of a word."""
        ends = (incomplete.rfind(char) for char in self._breaks if char in "=:")
        return max(ends, default=-1) + 1

    def format_completion(self, item: "CompletionItem[str]") -> str:
        says = "".join(c for c in " ".join((item.help or "").split()) if c.isprintable())
        short = says if len(says) <= _LONGEST_HELP else says[: _LONGEST_HELP - 1] + "…"
        value = item.value if item.type == "plain" else "-"
        return f"{item.type}\t{value}\t{short}"
