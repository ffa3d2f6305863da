"""Operations on an environment in a cluster: what each `wirespeed cluster` verb does."""
