"""ZeRO-1 over any torch optimizer: each parameter's optimizer state lives on one rank only.

S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020,
section 5.1. Every rank steps its own parameters and sends them to the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from wirespeed.errors import UsageError, WorldError
from wirespeed.training.exchange import broadcast, gathered_states

ALIGN_BYTES = 64
"""Each parameter begins at a multiple of it, as from torch's own CPU allocator (vector loads)."""


def least_loaded(sizes: Sequence[int], loads: Sequence[int]) -> list[int]:
    """The owner of each of `sizes`: the largest first, each to the rank that has least so far.

    loads: what each rank has already. R. L. Graham's LPT rule (Bounds on Multiprocessing Timing
    Anomalies, 1969): the largest load is at most 4/3 of the best partition's. Ties go to the
    lowest rank, so every rank comes to the same answer without a word.
    """
    loads = list(loads)
    owners = [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        owners[item] = loads.index(min(loads))
        loads[owners[item]] += sizes[item]
    return owners


def aligned(tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """(where each of one dtype begins in a flat buffer, elements of them all)."""
    step = max(1, ALIGN_BYTES // tensors[0].element_size())
    whole = [-(-one.numel() // step) * step for one in tensors]
    *starts, end = accumulate(whole, initial=0)
    return starts, end


class FlatBuffer:
    """Parameters of one dtype and device, moved into one contiguous tensor that they are views of.

    It goes over the wire as one broadcast without a copy; a broadcast a parameter costs a call's
    overhead each.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = parameters
        starts, end = aligned(parameters)
        first = parameters[0]
        self.tensor = torch.zeros(end, dtype=first.dtype, device=first.device)
        for parameter, start in zip(parameters, starts, strict=True):
            # The parameter keeps its strides (channels_last): kernels and gradients rely on them.
            view = self.tensor.as_strided(parameter.size(), parameter.stride(), start)
            view.copy_(parameter.detach())
            parameter.data = view
        self._addresses = [parameter.data_ptr() for parameter in parameters]

    def intact(self) -> bool:
        """Whether the parameters are still its views: `module.to()` gives them other storage."""
        return all(
            parameter.data_ptr() == address
            for parameter, address in zip(self.parameters, self._addresses, strict=True)
        )

    def holds(self, parameter: torch.Tensor) -> bool:
        """Whether that parameter is a view of this buffer now."""
        mine, its = self.tensor.untyped_storage(), parameter.detach().untyped_storage()
        return mine.data_ptr() == its.data_ptr()


class Shards:
    """All parameters of an optimizer by owner, and how each owner's reach the other ranks."""

    def __init__(self, group: dist.ProcessGroup | None, size: int) -> None:
        self._group = group
        self._size = size
        self.owner: dict[torch.Tensor, int] = {}
        """Rank of the group by parameter."""
        self._loads = [0] * size
        self._buffers: list[tuple[int, FlatBuffer]] = []
        self._loose: list[tuple[int, torch.Tensor]] = []

    def add(self, parameters: Sequence[torch.Tensor]) -> None:
        """Give each an owner; those that are trained move into flat buffers."""
        trained = [p for p in parameters if p.requires_grad]
        # Frozen ones have no state: they weigh nothing, unless somebody thaws them later.
        frozen = [p for p in parameters if not p.requires_grad]
        for parameter, rank in self._dealt(trained):
            self.owner[parameter] = rank
            self._loads[rank] += parameter.numel()
        self.owner.update(self._dealt(frozen))
        if self._size > 1:
            self._lay_out(parameters)

    def exchange(self) -> None:
        """Every rank gets each owner's parameters (collective; returns when they are there)."""
        if self._size == 1:
            return
        self._restore()
        pending = [(rank, buffer.tensor, buffer.tensor) for rank, buffer in self._buffers]
        pending += [
            (rank, p, p.detach().contiguous()) for rank, p in self._loose if p.requires_grad
        ]
        works = [broadcast(sent, rank, self._group) for rank, _, sent in pending]
        for work in works:
            work.wait()
        for _, target, sent in pending:
            if target.data_ptr() != sent.data_ptr():
                target.detach().copy_(sent)

    def _dealt(self, parameters: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
        ranks = least_loaded([p.numel() for p in parameters], self._loads)
        return list(zip(parameters, ranks, strict=True))

    def _lay_out(self, parameters: Sequence[torch.Tensor], was: FlatBuffer | None = None) -> None:
        movable: list[torch.Tensor] = []
        loose: list[torch.Tensor] = []
        for parameter in parameters:
            moves = _can_move(parameter) or (was is not None and was.holds(parameter))
            (movable if moves else loose).append(parameter)
        movable.sort(key=self._kind)
        for (rank, *_), alike in groupby(movable, key=self._kind):
            self._buffers.append((rank, FlatBuffer(list(alike))))
        self._loose += [(self.owner[p], p) for p in loose if p.numel()]

    def _restore(self) -> None:
        """Lay a buffer out anew where somebody gave one of its parameters other storage since."""
        if all(buffer.intact() for _, buffer in self._buffers):
            return
        before, self._buffers = self._buffers, []
        for rank, buffer in before:
            if buffer.intact():
                self._buffers.append((rank, buffer))
            else:
                self._lay_out(buffer.parameters, was=buffer)

    def _kind(self, parameter: torch.Tensor) -> tuple[int, str, str]:
        return self.owner[parameter], str(parameter.dtype), str(parameter.device)


def _can_move(parameter: torch.Tensor) -> bool:
    """Trained, dense, and alone in its storage: no other tensor may count on seeing its changes."""
    data = parameter.detach()
    alone = data.untyped_storage().nbytes() == data.numel() * data.element_size()
    dense = torch.empty_like(data).stride() == data.stride()
    return parameter.requires_grad and data.numel() > 0 and alone and dense


NOT_OPTIONS = ("params", "param_names")
"""What a parameter group holds beside the options of its optimizer."""

StateDict = dict[str, Any]


class ShardedOptimizer(Optimizer):
    """`optimizer_cls(params, **kwargs)` with its state shared out over the ranks of a group.

    Gradients must be synchronised before `step`, which is collective: every rank of the group calls
    it (and `state_dict`) at the same point. Whole parameters have one owner, the largest first, each
    to the rank with the fewest elements so far; ranks must therefore name the same parameters in
    the same order. A parameter named twice counts once.

    Parameters that are trained move into flat buffers (`parameter.data` is set); the Parameter
    objects stay the same, so do their gradients and hooks. Optimizers that look at all parameters
    at once (LBFGS) cannot be sharded.

    process_group: the ranks that share (None: the world; without a world, this process alone).
    """

    def __init__(
        self,
        params: Any,
        optimizer_cls: type[Optimizer],
        *,
        process_group: dist.ProcessGroup | None = None,
        **kwargs: Any,
    ) -> None:
        alone = not (dist.is_available() and dist.is_initialized())
        self._group = process_group
        self._rank = 0 if alone else dist.get_rank(process_group)
        self._size = 1 if alone else dist.get_world_size(process_group)
        self._shards = Shards(process_group, self._size)
        self._local: Optimizer | None = None
        super().__init__(_in_order(params), kwargs)
        self._shards.add(list(self._every_parameter()))
        # A group of which this rank owns nothing stays, empty: groups keep their numbers.
        self._local = optimizer_cls([self._mine(group) for group in self.param_groups], **kwargs)
        self.state = self._local.state
        self.defaults = self._local.defaults
        _copy_options(self._local.param_groups, self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; the new parameters get owners, those before keep theirs. On all ranks."""
        group = {**param_group, "params": _once(param_group["params"])}
        super().add_param_group(group)
        if self._local is None:
            return
        added = self.param_groups[-1]
        self._shards.add(added["params"])
        self._local.add_param_group(self._mine(added))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step this rank's parameters, then get the others' (collective).

        closure: called once, on every rank, before anything changes. Returns what it returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        local = self._inner()
        # Schedulers write into our groups; some optimizers keep counters in theirs.
        _copy_options(self.param_groups, local.param_groups)
        local.step()
        _copy_options(local.param_groups, self.param_groups)
        self._shards.exchange()
        return loss

    def state_dict(self, *, to: int | None = None) -> StateDict:
        """What the unsharded optimizer's `state_dict` would be: it loads into that one too, and
        into a ShardedOptimizer over any number of ranks. Collective.

        State from other ranks is put on the CPU. to: the only rank of the group that gets it (its
        memory must hold it all); the others get {}. None: every rank gets it.
        """
        self.state = self._inner().state
        packed = super().state_dict()
        keeps = to is None or to == self._rank
        if self._size > 1:
            packed["state"] = whole_state(self, self._inner(), self._group, keeps=keeps)
        return packed if keeps else {}

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take this rank's part of a whole state dict; every rank is given the whole one.

        UsageError: it is of other parameter groups, or no whole state dict.
        """
        saved = _saved_groups(state_dict, self.param_groups)
        ids = list(chain.from_iterable(group["params"] for group in saved))
        param_of = dict(zip(ids, self._every_parameter(), strict=True))
        local = self._inner()
        ours = list(chain.from_iterable(group["params"] for group in local.param_groups))
        number = {parameter: index for index, parameter in enumerate(ours)}
        local.load_state_dict(
            {
                "state": {
                    number[param_of[key]]: value
                    for key, value in state_dict["state"].items()
                    if param_of.get(key) in number
                },
                "param_groups": [
                    {**_options(group), "params": [number[p] for p in mine["params"]]}
                    for group, mine in zip(saved, local.param_groups, strict=True)
                ],
            }
        )
        self.state = local.state
        _copy_options(local.param_groups, self.param_groups)

    def _inner(self) -> Optimizer:
        if self._local is None:
            raise RuntimeError("the optimizer is used before it is complete")
        return self._local

    def _every_parameter(self) -> Iterator[torch.Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def _mine(self, group: Mapping[str, Any]) -> dict[str, Any]:
        owner = self._shards.owner
        return {
            **_options(group),
            "params": [p for p in group["params"] if owner[p] == self._rank],
        }


def whole_state(
    optimizer: Optimizer, local: Optimizer, group: dist.ProcessGroup | None, *, keeps: bool
) -> dict[int, dict[str, Any]]:
    """Every owner's state by the parameter's number in `optimizer`; {} where not kept. Collective.

    local: the optimizer of this rank's part, over parameters that are `optimizer`'s.
    """
    parameters = list(chain.from_iterable(one["params"] for one in optimizer.param_groups))
    number = {parameter: index for index, parameter in enumerate(parameters)}
    mine = {number[parameter]: entries for parameter, entries in local.state.items()}
    every = gathered_states(mine, group, parameters[0].device, keeps=keeps)
    whole: dict[int, dict[str, Any]] = {}
    for rank, theirs in enumerate(every if keeps else ()):
        if not isinstance(theirs, dict) or not set(theirs) <= set(number.values()):
            raise WorldError(
                f"rank {rank} of the group sent no state of this optimizer's parameters"
            )
        whole |= theirs
    return dict(sorted(whole.items()))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in NOT_OPTIONS}


def _copy_options(source: Iterable[Mapping[str, Any]], target: Iterable[dict[str, Any]]) -> None:
    for given, taking in zip(source, target, strict=True):
        taking.update(_options(given))


def _in_order(params: Any) -> Any:
    if isinstance(params, (set, frozenset)):
        raise UsageError(
            "the parameters are a set, which each rank goes through in another order",
            expected="a list, or module.parameters()",
        )
    return params


def _once(params: Any) -> list[Any]:
    """Parameters, or (name, parameter) pairs, without repetitions; refuses sharded ones."""
    unique: dict[int, Any] = {}
    for item in [params] if isinstance(params, torch.Tensor) else _in_order(params):
        parameter = item[1] if isinstance(item, tuple) else item
        if hasattr(parameter, "full_tensor"):
            raise UsageError(
                "a parameter is sharded already (a DTensor)",
                expected="whole parameters; with fully_shard any torch optimizer is sharded",
            )
        unique.setdefault(id(parameter), item)
    return list(unique.values())


def _saved_groups(
    state_dict: Mapping[str, Any], groups: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The parameter groups of a state dict that must fit to `groups`."""
    if "param_groups" not in state_dict or "state" not in state_dict:
        raise UsageError(
            "the state dict has no parameter groups",
            expected="the whole one, on every rank (state_dict(to=…) gives the others an empty one)",
        )
    saved: list[dict[str, Any]] = state_dict["param_groups"]
    theirs, ours = ([len(g["params"]) for g in some] for some in (saved, groups))
    if theirs != ours:
        raise UsageError(
            f"the state dict has parameter groups of {theirs} parameters",
            expected=f"{ours}, as this optimizer has",
        )
    return saved
