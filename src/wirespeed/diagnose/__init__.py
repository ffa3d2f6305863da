"""Why a job failed, hung or crawled, from its logs."""
