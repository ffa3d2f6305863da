"""Objects of Kubernetes as plain dicts: pure functions of a deployment."""
