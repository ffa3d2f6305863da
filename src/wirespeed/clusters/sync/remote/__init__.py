"""The pod's side of a sync: the texts of these modules are sent to the pod and run by the Python there.

Standard library only, and no word that Python 3.8 does not know: what the pod's image has is not ours
to choose. `program.main` is the way through them.

Everything is received into `.wirespeed-sync/new` below the target and checked against its hash; only
then is each file renamed into its place, so that a reader sees the old file or the new one, never a
half. A call that ends before that changes no file of the target; one that ends while renaming leaves
whole files, and the next call goes on. No link is followed on the way to a file: each folder is opened
from the one above it.
"""
