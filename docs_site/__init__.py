"""The documentation site: pages made from the code, and links that hold on a Git host and on the site.

`make docs` builds it. `hooks.py` is what mkdocs calls; all else here needs no mkdocs.
"""
