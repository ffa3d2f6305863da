"""A folder of this machine to folders of pods, by content, over `kubectl exec`.

patterns.py  what is left out: patterns as in .gitignore
tree.py      what lies in the folder here, and what cannot be brought
wire.py      frames through one kubectl process, with bounds
far.py       the pod's side: its text is sent there and run by the pod's Python
session.py   one pod brought up to date
telling.py   findings: what stood in the way, and what to do
watching.py  again after each change
"""
