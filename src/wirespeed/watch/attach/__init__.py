"""A running job that knows nothing of us, looked at from outside: nothing of it is changed."""
