"""Every rule of ours, a YAML file a family. A new file is found by itself."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from wirespeed.compiled import Compiled
from wirespeed.diagnose.rule import Rule


def _read(texts: Mapping[str, bytes]) -> tuple[Rule, ...]:
    from wirespeed.diagnose.rule_file import read_rules

    found = (one.rule for name, data in texts.items() for one in read_rules(data, name))
    return tuple(sorted(found, key=lambda rule: rule.id))


RULES = Compiled(Path(__file__).parent, "*.yaml", "compiled.json", tuple[Rule, ...], _read)


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """In the order of their ids."""
    return RULES.load()
