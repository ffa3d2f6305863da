"""Every rule, by family: one file each, with a tuple `RULES`. A new file is found by itself."""

import pkgutil
from functools import lru_cache
from importlib import import_module

from wirespeed.diagnose.rule import Rule

__all__ = ["all_rules", "rule_named"]


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """In the order of their ids."""
    found: list[Rule] = []
    for module in pkgutil.iter_modules(__path__):
        found += import_module(f"{__name__}.{module.name}").RULES
    return tuple(sorted(found, key=lambda rule: rule.id))


def rule_named(id: str) -> Rule | None:
    return next((rule for rule in all_rules() if rule.id == id), None)
