"""`wirespeed cluster VERB`: one file a verb."""
