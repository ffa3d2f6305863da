"""sync, shell, logs and gpus on pods of a real cluster."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_LOOK = """
import hashlib, os, sys
for place, folders, names in os.walk("/workspace"):
    folders[:] = [one for one in folders if one != ".wirespeed-sync"]
    for name in [*names, *folders]:
        path = os.path.join(place, name)
        told = os.readlink(path) if os.path.islink(path) else "folder" if os.path.isdir(path) else (
            oct(os.stat(path).st_mode & 0o777) + hashlib.sha256(open(path, "rb").read()).hexdigest())
        print(ascii(os.path.relpath(path, "/workspace")), told)
print("left", os.listdir("/workspace/.wirespeed-sync/new"))
"""


class Pods:
    """Two pods, made from what `cluster render` writes, and a folder to sync to them."""

    def __init__(self, kube: Any, mode: str) -> None:
        self.kube, self.folder = kube, kube.cli.folder / "mine"
        storage = {"mode": mode, "workspace_size": "1Gi"}
        self.path = kube.file(storage=storage)
        rendered = kube.cli("cluster", "render", str(self.path), "--engine", "statefulset")
        assert rendered.code == 0, rendered.err
        made = kube("apply", "-f", "-", stdin=rendered.out)
        assert made.returncode == 0, made.stderr
        kube.until(lambda: self._ready() == 2)
        self.folder.mkdir()

    def _ready(self) -> int:
        told = self.kube.json("get", "pods", "-l", "app.kubernetes.io/instance=demo")["items"]
        conditions = [one["status"].get("conditions", []) for one in told]
        return sum(
            any(c["type"] == "Ready" and c["status"] == "True" for c in one) for one in conditions
        )

    def __call__(self, verb: str, *words: str, **options: Any) -> Any:
        return self.kube.cli("cluster", verb, str(self.path), *words, **options)

    def start(self, verb: str, *words: str) -> Any:
        return self.kube.cli.start("cluster", verb, str(self.path), *words)

    def look(self, pod: int) -> list[str]:
        done = self.kube("exec", f"demo-{pod}", "--", "python3", "-X", "utf8", "-c", _LOOK)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.splitlines())

    def here(self) -> list[str]:
        code = _LOOK.replace("/workspace/.wirespeed-sync/new", str(self.kube.cli.folder / "tmp"))
        words = [sys.executable, "-X", "utf8", "-c", code.replace("/workspace", str(self.folder))]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return sorted(told.splitlines())


def _odd_files(folder: Path) -> None:
    for name in ("a b", "-rf", "quo'te\"", "new\nline", "ünï", "$(id)", os.fsdecode(b"\xff\xfe")):
        (folder / name).write_text("x")
    (folder / "pkg" / "deep").mkdir(parents=True)
    (folder / "pkg" / "train.py").write_text("print('one')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "big.bin").write_bytes(os.urandom(20_000_000))
    (folder / "link").symlink_to("pkg/train.py")


def test_each_pod_has_the_folder_and_a_call_that_was_killed_is_mended(kube: Any) -> None:
    pods = Pods(kube, "volumeClaimTemplates")
    _odd_files(pods.folder)
    done = pods("sync", str(pods.folder))
    assert done.code == 0, done.out + done.err
    assert pods.look(0) == pods.look(1) == pods.here()
    again = pods("sync", str(pods.folder))
    assert again.out.count("nothing to do") == 2 and "sent" not in again.out

    (pods.folder / "pkg" / "train.py").write_text("print('two')\n")
    third = pods("sync", str(pods.folder))
    assert third.out.count("1 changed, 13 B sent") == 2, third.out

    before = pods.look(0)
    (pods.folder / "big.bin").write_bytes(os.urandom(250_000_000))
    (pods.folder / "a b").unlink()
    running = pods.start("sync", str(pods.folder), "--delete")
    new = (
        "exec",
        "demo-0",
        "--",
        "sh",
        "-c",
        "ls -s /workspace/.wirespeed-sync/new | grep -v total",
    )
    kube.until(lambda: kube(*new).stdout.strip())
    running.signal(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    halted = [line for line in pods.look(0) if not line.startswith("left")]
    assert halted == [line for line in before if not line.startswith("left")]
    mended = pods("sync", str(pods.folder), "--delete")
    assert mended.code == 0 and mended.out.count("1 changed, 1 deleted") == 2, mended.out
    assert pods.look(0) == pods.look(1) == pods.here()


def test_one_claim_for_all_is_written_once(kube: Any) -> None:
    pods = Pods(kube, "rwx")
    _odd_files(pods.folder)
    done = pods("sync", str(pods.folder))
    assert done.code == 0, done.out + done.err
    assert "demo-0" in done.out and "demo-1" not in done.out and "for all pods" in done.out
    assert pods.look(0) == pods.look(1) == pods.here()
    elsewhere = pods("sync", str(pods.folder / "pkg"), "--to", "/tmp/pkg")
    assert elsewhere.out.count("new") == 2, elsewhere.out


_MOUNTED = """
set -e
mkdir -p "$1/inner"
mount -t tmpfs -o "$2" none "$1$3"
shift 3
code=0; "$@" || code=$?
find "$TARGET" ! -type d ! -path '*/.wirespeed-sync/*' -printf 'there %P %s\\n'
exit $code
"""


@pytest.mark.parametrize(
    ("options", "place", "code", "words"),
    [
        ("size=64m", "/inner", 0, ("there inner/model.bin 3000000", "there inner/link")),
        ("size=1m", "/inner", 1, ("CLUSTER-031", "there good 1")),
        ("size=1m", "", 1, ("CLUSTER-031",)),
        ("ro", "", 1, ("CLUSTER-032",)),
    ],
)
def test_other_file_systems_in_the_target(
    cli: Any, options: str, place: str, code: int, words: tuple[str, ...]
) -> None:
    """The pod is this machine; what is mounted there is full, read-only, or below the target."""
    if os.geteuid() != 0:
        pytest.skip("Requires: root")
    target, folder = cli.folder / "target", cli.folder / "mine"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "model.bin").write_bytes(os.urandom(3_000_000))
    (folder / "inner" / "link").symlink_to("model.bin")
    (folder / "good").write_text("x")
    sync = [sys.executable, "-m", "wirespeed", "cluster", "sync", "demo", str(folder)]
    script = ["unshare", "--mount", "sh", "-c", _MOUNTED, "sh", str(target), options, place]
    env = {**_one_pod_here(cli), "TARGET": str(target)}
    done = cli.start_words([*script, *sync, "--to", str(target)], env=env).wait()
    assert done.code == code and all(word in done.out for word in words), done.out + done.err
    assert ".wirespeed-sync.part" not in done.out
    assert ("model.bin 3000000" in done.out) == (code == 0)


def _one_pod_here(cli: Any) -> dict[str, str]:
    fake = Path(__file__).parents[1] / "clusters" / "operations" / "fake_kubectl.py"
    program = cli.folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{fake.read_text()}")
    program.chmod(0o755)
    (cli.folder / "clusters").mkdir()
    file = {"cluster": {"name": "demo"}, "workload": {"python": sys.executable}}
    (cli.folder / "clusters" / "demo.yaml").write_text(json.dumps(file))
    pod = {"metadata": {"name": "demo-0"}, "spec": {}, "status": {"phase": "Running"}}
    (cli.folder / "pods.json").write_text(json.dumps({"items": [pod]}))
    path = f"{program.parent}{os.pathsep}{cli.environment()['PATH']}"
    return {"PATH": path, "FAKE_PODS": str(cli.folder / "pods.json")}


_SMI = """#!/bin/sh
case "$*" in
*query-gpu=index*)
  echo '0, NVIDIA H100 80GB HBM3, GPU-6f1c, 1024, 81559, 37, 41, 120.53, 700.00, 0'
  printf '1, NVIDIA \\033[2JH100, GPU-92ab, [N/A], 81559, 0, 33, [Unknown Error], 700.00, 3\\n' ;;
*) echo 'GPU-6f1c, 4711' ;;
esac
"""


def test_shell_logs_and_gpus(kube: Any) -> None:
    pods = Pods(kube, "none")
    _shells(pods)
    hung = _gpus(pods)
    _logs(pods)
    told = hung.wait().json["pods"]
    assert [len(one["gpus"]) for one in told] == [2, 0] and "hangs" in told[1]["problem"]
    assert told[0]["gpus"][0]["processes"] == 1


def _shells(pods: Pods) -> None:
    done = pods(
        "shell",
        "--pod",
        "1",
        "--",
        "sh",
        "-c",
        'echo "$HOSTNAME" "$PWD" "$1"; exit 7',
        "x",
        "$(a) b",
    )
    assert (done.code, done.out) == (7, "demo-1 /workspace $(a) b\n"), done.err
    words = [sys.executable, "-m", "wirespeed", "cluster", "shell", str(pods.path)]
    env = pods.kube.cli.environment()
    script = subprocess.run(
        words, input="echo $HOSTNAME; exit 3\n", capture_output=True, text=True, env=env, timeout=60
    )
    assert (script.returncode, script.stdout) == (3, "demo-0\n")
    assert pods("shell", "--", "no-such-program").code == 127
    assert pods("shell", "--pod", "9").code == 2


def _gpus(pods: Pods) -> Any:
    """The command that waits for a hung nvidia-smi; it has 15 s."""
    pods.kube(
        "exec", "-i", "demo-0", "--", "sh", "-c", f"cat > {_BIN}; chmod +x {_BIN}", stdin=_SMI
    )
    done = pods("gpus")
    assert done.code == 1, done.err
    lines = done.out.splitlines()
    assert "\x1b" not in done.out and "demo-0" in lines[1] and "79.6 GiB" in lines[1]
    assert "power.draw: [Unknown Error]" in lines[2] and "there is no nvidia-smi" in lines[3]
    hung = "#!/bin/sh\nexec sleep 300\n"
    pods.kube(
        "exec", "-i", "demo-1", "--", "sh", "-c", f"cat > {_BIN}; chmod +x {_BIN}", stdin=hung
    )
    waiting = pods.start("gpus", "-o", "json")
    looks = ("exec", "demo-1", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    pods.kube.until(lambda: "sleep 300" in pods.kube(*looks).stdout)
    return waiting


_BIN = "/usr/local/bin/nvidia-smi"


def _logs(pods: Pods) -> None:
    kube = pods.kube
    following = pods.start("logs", "--follow")

    def say(pod: int, text: str) -> bool:
        kube("exec", f"demo-{pod}", "--", "sh", "-c", f"echo {text} > /proc/1/fd/1")
        return f"demo-{pod}: {text}\n" in following.out()

    kube.until(lambda: say(0, "one-of-0") and say(1, "one-of-1"))
    kube("exec", "demo-0", "--", "sh", "-c", "kill 1")
    kube.until(lambda: "demo-0 was started again" in following.err())
    kube.until(lambda: say(0, "two-of-0"))
    following.signal(signal.SIGINT)
    done = following.wait()
    assert done.code == 130 and "Traceback" not in done.err
    assert all(line.startswith(("demo-0: ", "demo-1: ")) for line in done.out.splitlines())
    all_of_it = pods("logs")
    assert "demo-1: one-of-1" in all_of_it.out and "demo-0: two-of-0" in all_of_it.out
    assert "one-of-0" not in all_of_it.out and "one-of-0" in pods("logs", "--previous").out
    assert pods("logs", "--tail", "1", "--pod", "1").out == "demo-1: one-of-1\n"
