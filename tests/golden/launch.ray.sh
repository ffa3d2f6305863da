#!/bin/sh
# wirespeed launch --on ray: 4 ranks
set -eu
pids=
# ray
{ printf '%s' '{"command": ["python", "train.py", "--name", "a b; $(id) '"'"'c'"'"'"], "python": "/opt/venv/bin/python", "environment": {"NCCL_DEBUG": "INFO", "WIRESPEED_DIRECTORY": "/home/me/run"}, "address": "local", "bundles": [{"ranks": 2, "host": ""}, {"ranks": 2, "host": ""}], "strategy": "STRICT_SPREAD", "cpus": null, "gpus": null, "place_s": 100.0, "grace_s": 5.0, "interface": ""}
'; while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null; } |
  PYTHON -P -m wirespeed.launchers.ray.driver &
pids="$pids $!"
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
