"""What a selection of checks needs: some are told from the facts of the nodes alone."""

from collections.abc import Collection

from wirespeed.checks.registry import CHECKS

__all__ = ["facts_suffice"]

_FROM_FACTS = ("nodes", "placement", "settings")
"""Families whose checks read nothing but what each node tells of itself."""


def facts_suffice(only: Collection[str]) -> bool:
    """Whether the checks of these ids need neither torch nor a process group; none selected: no."""
    return bool(only) and all(CHECKS[id].family in _FROM_FACTS for id in only)
