"""The user's own kubectl or oc."""
