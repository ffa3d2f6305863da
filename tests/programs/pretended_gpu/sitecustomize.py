"""GPUs that pretend, for control flow only: torch says it has them, works on the CPU, sends by gloo.

With this folder in PYTHONPATH; WIRESPEED_TEST_PRETENDED_GPUS: how many. Tensors that are asked for on
`cuda` are made on the CPU, what NCCL shall do gloo does, a graph's calls are made once, while it is
captured, and its replay does nothing. Its times and rates say nothing.
"""

import importlib.abc
import os
import sys
import time
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

COUNT = int(os.environ.get("WIRESPEED_TEST_PRETENDED_GPUS", "1"))
FREE, TOTAL = 1 << 30, 2 << 30


class Finder(importlib.abc.MetaPathFinder):
    """Finds what the usual finders find, and changes it once it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        change = {"torch": pretend, "wirespeed.node.limits": count}.get(name)
        others = [one for one in sys.meta_path if one is not self] if change else []
        found = (one.find_spec(name, path, target) for one in others)
        spec = next((one for one in found if one is not None), None)
        if change is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


def count(limits: Any) -> None:
    limits.count_gpus = lambda *_: COUNT


class Stream:
    def __init__(self, *_: object, **__: object) -> None:
        self.stream_id = self.cuda_stream = 0
        self.device = None

    def nothing(self, *_: object) -> None:
        """All is done when it was issued."""

    wait_stream = wait_event = synchronize = nothing

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True


class Event(Stream):
    def record(self, stream: object = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, later: "Event") -> float:
        return max((later.at - self.at) * 1e3, 1e-3)

    wait = Stream.nothing


def pretend(torch: Any) -> None:
    cuda, dist, current = torch.cuda, torch.distributed, Stream()
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        uuid=f"00000000-0000-0000-0000-{os.environ.get('CUDA_VISIBLE_DEVICES', '0'):0>12}",
        L2_cache_size=50 << 20,
        total_memory=TOTAL,
        multi_processor_count=132,
        major=9,
        minor=0,
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": COUNT,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (9, 0),
        "get_device_properties": properties,
        "mem_get_info": (FREE, TOTAL),
        "current_stream": current,
        "default_stream": current,
        "is_bf16_supported": True,
    }
    answers |= dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), 0)
    done = ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "init", "_sleep")
    done += ("set_per_process_memory_fraction", "_lazy_init", "set_stream")
    for name, answer in {**answers, **dict.fromkeys(done)}.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    for name in ("stream", "device", "graph"):
        setattr(cuda, name, lambda *_, **__: nullcontext())
    cuda.Stream, cuda.Event = Stream, Event
    cuda.CUDAGraph = lambda: SimpleNamespace(replay=lambda: None)
    cuda.nccl.version = lambda: (2, 30, 7)
    profiler, profile = torch.profiler, torch.profiler.profile
    host = [profiler.ProfilerActivity.CPU]
    profiler.profile = lambda activities=None, **given: profile(activities=host, **given)
    _send_by_gloo(dist)
    _on_the_cpu(torch)


def _send_by_gloo(dist: Any) -> None:
    open_group, barrier = dist.init_process_group, dist.barrier

    def init_process_group(_: object = None, **given: Any) -> None:
        open_group("gloo", **{**given, "device_id": None})

    def any_barrier(*args: Any, device_ids: object = None, **given: Any) -> Any:
        return barrier(*args, **given)

    dist.init_process_group, dist.barrier = init_process_group, any_barrier
    dist.is_nccl_available = lambda: True


def _on_the_cpu(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode

    def there(value: object) -> object:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and value.startswith("cuda") else value

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.device:
                return func(*args, **(kwargs or {}))
            if func is torch.Tensor.pin_memory:
                return args[0]
            given = {name: there(value) for name, value in (kwargs or {}).items()}
            return func(*map(there, args), **given)

    OnTheCpu().__enter__()


sys.meta_path.insert(0, Finder())
