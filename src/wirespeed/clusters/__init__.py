"""Training environments on Kubernetes and OpenShift, from one cluster file.

    file/       the cluster file: its model, reading it with all errors at once, template, JSON Schema
    presets/    fabrics as data: environment, resources and mounts, each with its reason
    manifests/  objects of Kubernetes, as plain dicts, from a deployment; pure
    kube/       the user's own kubectl or oc: starting it, and what its refusals mean
    life/       deploy, status, sync, shell, logs, gpus, clean: one file a verb
    discover/   a cluster file from a live cluster

`deployment.py` says what is deployed: a cluster file with every choice made. Nothing here prints.
"""
