"""The sections of the page that `wirespeed report` writes: one file each, pure functions of records."""
