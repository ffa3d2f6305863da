"""A folder of this machine to folders of pods, by content, over `kubectl exec`.

local_tree.py  what lies in the folder here, what of it is left out (patterns as in .gitignore), and
               what cannot be brought
transfer.py    frames through one kubectl process, with bounds; one pod brought up to date
remote/        the pod's side: its text is sent there and run by the pod's Python
sync.py        all pods, once or again after each change, and findings: what stood in the way
"""
