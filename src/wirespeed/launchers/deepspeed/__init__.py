"""The DeepSpeed engine's parts: command lines, the ranks' environment, and the guard of its runner."""
