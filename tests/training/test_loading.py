"""Batches through a file and torch's DataLoader: the model's own samples, and workers that end."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from processes import gone, until

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.training.loading import Loader  # noqa: E402
from wirespeed.training.models.catalogue import model_named  # noqa: E402

PROGRAM = Path(__file__).parents[1] / "programs" / "load_and_wait.py"


@pytest.mark.parametrize("name", ["tiny", "mlp"])
def test_batches_are_samples_of_the_model(name: str) -> None:
    model = model_named(name)
    loader = Loader(model, samples=3, workers=0, seed=7)
    known_inputs, known_targets = model.batch(7, 1024)
    seen = set()
    for step in range(4):
        inputs, targets = loader(step, 0)
        assert inputs.shape == (3, *known_inputs.shape[1:]) and inputs.dtype == known_inputs.dtype
        assert targets.shape == (3, *known_targets.shape[1:])
        for one, target in zip(inputs, targets, strict=True):
            alike = (known_inputs == one).reshape(len(known_inputs), -1).all(1)
            (index, *_) = alike.nonzero().flatten().tolist()
            assert torch.equal(known_targets[index], target)
            seen.add(index)
    assert len(seen) > 6, "drawn by chance"
    loader.close()
    with pytest.raises(ValueError, match="closed"):
        loader(5, 0)


def test_the_same_seed_gives_the_same_batches() -> None:
    def first(seed: int) -> torch.Tensor:
        loader = Loader(model_named("mlp"), samples=4, workers=0, seed=seed)
        try:
            return loader(1, 0)[0]
        finally:
            loader.close()

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


@pytest.mark.slow
def test_a_rank_that_is_killed_takes_its_workers_along_and_leaves_no_socket_open(
    tmp_path: Path,
) -> None:
    """And no file of the working directory runs in a worker, which Python starts with `-c`."""
    for name in ("bisect", "random", "signal", "threading"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = str(server.getsockname()[1])
        rank = subprocess.Popen([sys.executable, str(PROGRAM), port], cwd=tmp_path)
        try:
            peer, _ = server.accept()
            peer.settimeout(60)
            worker = int(peer.makefile().readline())
            assert not gone(worker)
            assert not (tmp_path / "ran").exists()
            rank.kill()
            assert peer.recv(1) == b"", "nobody else holds it"
            peer.close()
        finally:
            rank.kill()
            rank.wait()
        until(lambda: gone(worker))
