"""Processes: guards, exit codes, frames and ports. Standard library only: far nodes run it too."""
