"""All keys that a cluster file may have, and which of them somebody meant."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin

from wirespeed.clusters.file.yaml_tree import Key

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["all_keys", "children", "nearest", "part_of"]

_LONGEST = 60
"""Of a word that is compared with others."""
_HERE, _ELSEWHERE = 0.6, 0.75
"""How alike a key has to be: beside the wrong one, and at another place."""
_PLACES = 3


@cache
def all_keys() -> tuple[str, ...]:
    """Dotted, in the order of the file; those of a list's items without an index."""
    from wirespeed.clusters.file.model import ClusterFile

    return tuple(_below(ClusterFile, ""))


def _below(model: "type[BaseModel]", before: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield before + name
        if part := part_of(info.annotation):
            yield from _below(part, f"{before}{name}.")


def part_of(annotation: Any) -> "type[BaseModel] | None":
    """The section that a value of this type is, or that the items of a list are."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is tuple:
        return part_of(get_args(annotation)[0])
    return None


def children(section: Key) -> tuple[str, ...]:
    """The keys that this section may have."""
    before = "".join(f"{one}." for one in section if isinstance(one, str))
    found = (key.removeprefix(before) for key in all_keys() if key.startswith(before))
    return tuple(key for key in found if "." not in key)


def nearest(section: Key, name: str) -> str:
    """Keys like `name`: beside it by their name, at other places by their whole path; "" if none.

    A key of exactly that name elsewhere was put at the wrong place; else it was misspelt.
    """
    word = _plain(name)
    here = {_plain(key): key for key in children(section)}
    if word in here:
        return here[word]
    places: dict[str, list[str]] = {}
    for path in all_keys():
        places.setdefault(_plain(path.rpartition(".")[2]), []).append(path)
    if word in places:
        return " or ".join(places[word][:_PLACES])
    return _alike(word, here, _HERE) or _alike(word, places, _ELSEWHERE)


def _alike(word: str, known: Mapping[str, str | list[str]], cutoff: float) -> str:
    close = get_close_matches(word[:_LONGEST], list(known), n=1, cutoff=cutoff)
    if not close:
        return ""
    found: str | list[str] = known[close[0]]
    return found if isinstance(found, str) else " or ".join(found[:_PLACES])


def _plain(name: str) -> str:
    """gpuNodes, gpu-nodes and GPU_NODES are gpu_nodes, misspelt."""
    return name[:_LONGEST].replace("-", "").replace("_", "").lower()
