"""One offline HTML page: sections of runs, their tables and charts."""
