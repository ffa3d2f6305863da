"""What is done with a deployment, one file a verb."""
