"""Training environments on Kubernetes and OpenShift, from one cluster file.

    file/        the cluster file: kinds of values, sections, rules
    presets/     fabrics as data: environment, resources and mounts, each with its reason
    manifests/   objects of Kubernetes, as plain dicts, from a deployment; pure
    kube/        the user's own kubectl or oc: starting it, and what its refusals mean
    operations/  deploy, status, logs, gpus, clean, nccl-tests, and what they share
    sync/        a folder of this machine to folders of pods
    discover/    a cluster file from a live cluster

`reading.py` finds and reads a cluster file, `deployment.py` makes a `Deployment` of it,
`template.py` writes a new one, `pods.py` is what launchers know of all this. Nothing here prints.
"""

CPU_IMAGE, GPU_IMAGE = "localhost/wirespeed:cpu", "localhost/wirespeed:cuda"
"""What `images/build cpu` and `images/build cuda` make."""
