"""What tests of launches on several nodes ask: who said what, and where a command runs."""

from typing import Any


def by_rank(text: str) -> dict[int, list[str]]:
    """Output lines (`node-1/rank-1: …`) by rank."""
    found: dict[int, list[str]] = {}
    for line in text.splitlines():
        head, _, said = line.partition(": ")
        found.setdefault(int(head.rpartition("-")[2]), []).append(said)
    return found


def running_on(ssh_lab: Any, words: tuple[str, ...]) -> dict[str, int]:
    """Pid by node of that very command, not of what started it."""
    return {
        node: pid
        for node in ssh_lab.hosts
        for pid, line in ssh_lab.processes(node).items()
        if line == " ".join(words)
    }
