"""`python -m wirespeed.diagnose.rules`: read all families once, for every start after this one."""

from wirespeed.diagnose.rules import RULES

RULES.write()
