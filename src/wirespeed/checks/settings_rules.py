"""Settings that hurt, as data: settings.yaml."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, convert

from wirespeed.compiled import Compiled


class Port(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of an RDMA device, as nodes tell it."""

    device: str = "mlx5_0"
    port: int = 1
    state: str = "ACTIVE"
    link_layer: str = "InfiniBand"
    gids: int = 2


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node for which a rule does or does not hold."""

    environment: dict[str, str] = {}
    gpus: int = 0
    gpu: str = "NVIDIA H100 80GB HBM3"
    rdma: tuple[Port, ...] = ()


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    good: str
    """What is so when nothing is found, as a sentence."""
    hurts: str
    """The name of a condition: `settings_conditions.py`."""
    because: str
    costs: str
    fix: str
    link: str
    bad: Example
    fine: Example = Example()


def _read(texts: Mapping[str, bytes]) -> tuple[Rule, ...]:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["settings.yaml"]), tuple[Rule, ...], strict=False)


TEXTS = Compiled(Path(__file__).parent, "settings.yaml", "settings.json", tuple[Rule, ...], _read)


@lru_cache(maxsize=1)
def settings_rules() -> tuple[Rule, ...]:
    """In the order of their ids."""
    return TEXTS.load()


if __name__ == "__main__":
    TEXTS.write()
