"""What a job of a large model sends: its groups, operations and sizes, and all of it on fewer ranks.

The job is Megatron-LM's: tensor parallel ranks are neighbours, those of a data parallel group come next,
pipeline stages lie farthest apart, and experts are spread within the data parallel groups. With sequence
parallelism (V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022)
and a distributed optimizer one turn of each is:

tensor    all_gather and reduce_scatter of the activations of a micro-batch, tokens × d_model
pipeline  send and receive of one rank's part of them, tokens × d_model / tp
data      reduce_scatter of the gradients of a layer's part, weights / tp, all_gather of its parameters
expert    all_to_all of what the router sends away, tokens × experts a token × d_model / tp

On fewer ranks groups become smaller, and calls stay as large as they are in the job. Where that is too
much for the machine, a micro-batch has fewer tokens, and gradients are cut into more pieces.

Nothing here needs torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wirespeed.errors import UsageError
from wirespeed.model.bench_records import ParallelGroup, Parallelism, Shape
from wirespeed.model.units import format_size
from wirespeed.training.models.sizes import TRANSFORMERS, TransformerSize
from wirespeed.typed_command import TYPED


@dataclass(frozen=True, slots=True)
class Mixture:
    """A transformer whose feed-forward part is one of several experts; 0 of them: it is dense."""

    size: TransformerSize
    experts: int = 0
    active: int = 0
    """Experts that a token goes to."""

    @property
    def dense_elements(self) -> int:
        """Of a layer's matrices those that every data parallel rank has: without experts all, else the
        attention's (2 d d and 2 d k) and the router's (d a expert)."""
        size = self.size
        if not self.experts:
            return size.layer_matrix_elements
        return size.d_model * (2 * size.d_model + 2 * size.d_kv + self.experts)


_MIXTRAL = replace(
    TRANSFORMERS["llama-8b"], name="mixtral-8x7b", vocab=32_000, context=4096, rope_theta=1e6
)
"""mistralai/Mixtral-8x7B-v0.1, config.json; the context is ours."""
SHAPES: dict[str, Mixture] = {
    **{name: Mixture(size) for name, size in TRANSFORMERS.items()},
    "tiny-moe": Mixture(replace(TRANSFORMERS["tiny"], name="tiny-moe"), experts=8, active=2),
    "mixtral-8x7b": Mixture(_MIXTRAL, experts=8, active=2),
}
"""Of the mixtures, `tiny-moe` is ours."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Ranks of each kind of group; `expert` divides `data`."""

    tensor: int
    pipeline: int
    data: int
    expert: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    def of(self, kind: Parallelism) -> int:
        found: int = getattr(self, kind)
        return found

    def stride(self, kind: Parallelism) -> int:
        """How far apart the ranks of one such group lie."""
        return {"tensor": 1, "pipeline": self.tensor * self.data}.get(kind, self.tensor)

    def groups(self, kind: Parallelism) -> str:
        """The cut of the world into such groups, as `members_of` of the collectives takes it."""
        size, every = self.of(kind), self.stride(kind)
        if size * every == self.ranks:
            return "all" if every == 1 else f"every-{every}"
        return f"of-{size}" if every == 1 else f"of-{size}-every-{every}"

    def __str__(self) -> str:
        kinds = [f"{kind} {self.of(kind)}" for kind in KINDS if self.of(kind) > 1]
        return " × ".join(kinds[:3]) + "".join(f", {one}" for one in kinds[3:])


KINDS: tuple[Parallelism, ...] = ("tensor", "pipeline", "data", "expert")
_OPS: dict[Parallelism, tuple[str, ...]] = {
    "tensor": ("all_gather", "reduce_scatter"),
    "pipeline": ("send_recv",),
    "data": ("reduce_scatter", "all_gather"),
    "expert": ("all_to_all", "all_to_all_v"),
}


def shape_named(name: str) -> Mixture:
    """The model of that name; UsageError lists the names otherwise."""
    if name not in SHAPES:
        raise UsageError(f"no shape is called {name!r}", expected="one of " + ", ".join(SHAPES))
    return SHAPES[name]


def check_degrees(model: Mixture, job: Degrees) -> None:
    """UsageError where such a model cannot be cut so, or where there is nothing to send."""
    size, name = model.size, model.size.name
    if size.heads % job.tensor:
        raise UsageError(
            f"--tp {job.tensor}, and {name} has {size.heads} heads of attention",
            expected=f"a divisor of {size.heads}",
        )
    if job.pipeline > size.layers:
        raise UsageError(
            f"--pp {job.pipeline}, and {name} has {size.layers} layers",
            expected=f"at most {size.layers}",
        )
    if job.expert > 1 and not model.experts:
        mixtures = ", ".join(one for one, model in SHAPES.items() if model.experts)
        raise UsageError(
            f"--ep {job.expert}, and {name} has no experts", expected=f"a mixture: {mixtures}"
        )
    if model.experts % job.expert or job.data % job.expert:
        raise UsageError(
            f"--ep {job.expert} with --dp {job.data} for the {model.experts} experts of {name}",
            expected="a divisor of both: experts are spread within the data parallel groups",
        )
    if job.ranks == 1:
        raise UsageError(
            "a shape of one rank, which sends nothing",
            expected="how the job is cut: --tp, --pp, --dp, and --ep for a mixture of experts",
            next=f"wirespeed bench --shape {name} --tp 4 --pp 2 --dp 4",
        )


def scaled(job: Degrees, ranks: int) -> Degrees:
    """The job's groups on so many ranks, all of which take part.

    Of each kind that the job has some are left where that is possible at all; then tensor parallel
    groups, which lie within a node, keep as many ranks as they can, and the others shrink alike. More
    ranks than the job has: data parallel groups become larger. UsageError where there is no such cut.
    """
    found = max(_cuts(job, ranks), key=lambda one: _closeness(job, one), default=None)
    if found is None or ranks == 1:
        base = job.tensor * job.pipeline
        raise UsageError(
            f"{job} cannot be cut down to {ranks} ranks" if ranks > 1 else "one rank sends nothing",
            expected=f"2 to {job.ranks} ranks, though not every number; above, a multiple of {base}",
            next=f"{TYPED:--ranks {min(8, job.ranks)}}",
        )
    return found


def _cuts(job: Degrees, ranks: int) -> Iterator[Degrees]:
    for tensor in (one for one in range(1, job.tensor + 1) if ranks % one == 0):
        rest = ranks // tensor
        for pipeline in (one for one in range(1, job.pipeline + 1) if rest % one == 0):
            data = rest // pipeline
            whole = tensor == job.tensor and pipeline == job.pipeline
            if data <= job.data or whole:
                expert = max(n for n in range(1, job.expert + 1) if data % n == 0)
                yield Degrees(tensor, pipeline, data, expert)


def _closeness(job: Degrees, one: Degrees) -> tuple[float, ...]:
    kept = sum(one.of(kind) > 1 for kind in KINDS if job.of(kind) > 1)
    shrunk = max(job.pipeline / one.pipeline, job.data / one.data)
    return kept, one.tensor, one.expert, -shrunk, one.data


def shape_of(
    model: Mixture,
    job: Degrees,
    ranks: int,
    *,
    dtype: str,
    itemsize: int,
    tokens: int | None = None,
    most_bytes: int | None = None,
) -> Shape:
    """The job's traffic on so many ranks; no call and no matrix is larger than `most_bytes`.

    tokens: of a micro-batch; None: the model's context. UsageError where nothing can be cut so.
    """
    check_degrees(model, job)
    here, size = scaled(job, ranks), model.size
    job_tokens = tokens or size.context
    if job_tokens < job.tensor:
        raise UsageError(
            f"--tokens {job_tokens} with --tp {job.tensor}",
            expected=f"{job.tensor} or more: each tensor parallel rank has its part of them",
        )
    token_bytes = size.d_model * itemsize
    limit = most_bytes or 1 << 62
    if limit < token_bytes * job.tensor:
        raise UsageError(
            f"no call above {format_size(limit)}, and {job.tensor} tokens of {size.name}, of which a "
            f"tensor parallel rank has one, take {format_size(token_bytes * job.tensor)}",
            expected=f"-e {format_size(token_bytes * job.tensor, exact=True)} or more",
        )
    in_job = _sizes(model, job, job_tokens, itemsize)
    busiest = max(in_job["tensor"], in_job["expert"])
    fitting = max(job.tensor, min(job_tokens, job_tokens * limit // busiest))
    sizes = _sizes(model, job, fitting, itemsize)
    sizes["data"] = in_job["data"] // -(-in_job["data"] // limit)
    kinds = [kind for kind in KINDS if job.of(kind) > 1]
    job_columns = size.d_ff // job.tensor
    return Shape(
        model=size.name,
        job=str(job),
        job_ranks=job.ranks,
        ranks=ranks,
        dtype=dtype,
        tokens=fitting,
        job_tokens=job_tokens,
        width=size.d_model,
        columns=max(1, min(job_columns, limit // token_bytes)),
        job_columns=job_columns,
        groups=tuple(
            ParallelGroup(
                kind=kind,
                ops=_OPS[kind],
                groups=here.groups(kind),
                ranks=here.of(kind),
                job_ranks=job.of(kind),
                size_bytes=sizes[kind],
                job_size_bytes=in_job[kind],
            )
            for kind in kinds
            if here.of(kind) > 1
        ),
        lost=tuple(kind for kind in kinds if here.of(kind) == 1),
    )


def _sizes(model: Mixture, job: Degrees, tokens: int, itemsize: int) -> dict[Parallelism, int]:
    """Bytes of a call, as its collective counts them (docs/bandwidth.md): of the job's own degrees."""
    activations = tokens * model.size.d_model * itemsize
    return {
        "tensor": activations,
        "pipeline": max(1, activations // job.tensor),
        "data": model.dense_elements // job.tensor * itemsize,
        "expert": activations * max(1, model.active) // job.tensor,
    }
