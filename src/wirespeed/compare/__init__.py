"""Better, worse or noise? Runs against runs, and one figure over many runs. Pure: records in and out."""
