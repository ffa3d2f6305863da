"""A kubectl for tests: `get` tells $FAKE_PODS, `exec` runs the words here, `logs` tells a file.

$FAKE_EXEC changes what exec does: `no-python` and `forbidden` refuse it with kubectl's words, `cut:N`
ends it after N bytes of stdin.
"""

import os
import subprocess
import sys
from pathlib import Path

_REFUSALS = {
    "no-python": "error: Internal error occurred: error executing command in container: failed to exec "
    'in container: failed to start exec "4a44f9": OCI runtime exec failed: exec failed: unable to start '
    'container process: exec: "/usr/bin/python3": stat /usr/bin/python3: no such file or directory: '
    "unknown\n",
    "forbidden": 'Error from server (Forbidden): pods "demo-0" is forbidden: User "jane" cannot create '
    'resource "pods/exec" in API group "" in the namespace "ml"\n',
}


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("--namespace=")]
    verb, how = words[0], os.environ.get("FAKE_EXEC", "")
    if verb == "get":
        sys.stdout.write(Path(os.environ["FAKE_PODS"]).read_text("utf-8"))
        return 0
    if verb == "logs":
        return _logs(Path(os.environ["FAKE_PODS"]).with_name(f"{words[1]}.log"))
    if how in _REFUSALS:
        sys.stderr.write(_REFUSALS[how])
        return 1
    command = words[words.index("--") + 1 :]
    if how.startswith("cut:"):
        return _cut(command, int(how.removeprefix("cut:")))
    return subprocess.call(command)


def _logs(path: Path) -> int:
    try:
        sys.stdout.buffer.write(path.read_bytes())
    except FileNotFoundError:
        sys.stderr.write(f'Error from server (NotFound): pods "{path.stem}" not found\n')
        return 1
    return 0


def _cut(command: list[str], most: int) -> int:
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    while most > 0 and (data := os.read(0, min(most, 1 << 16))):
        process.stdin.write(data)
        process.stdin.flush()
        most -= len(data)
    process.kill()
    process.wait()
    sys.stderr.write("error: unexpected EOF\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
