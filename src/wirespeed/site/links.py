"""Where pages lie, and words that several of them say."""

from datetime import datetime
from urllib.parse import quote, urlencode


def node_link(host: str) -> str:
    return f"/nodes/{quote(host, safe='')}"


def run_link(run: str) -> str:
    """run: name of its folder."""
    return f"/runs/{quote(run, safe='')}"


def query_link(path: str, **values: object) -> str:
    """A page with what is asked of it; what is empty is left out."""
    told = {name: value for name, value in values.items() if value}
    return f"{path}?{urlencode(told)}" if told else path


def ago(moment: datetime, now: datetime) -> str:
    """`3 h ago`."""
    seconds = (now - moment).total_seconds()
    for size, word in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word} ago"
    return "just now" if seconds < 60 else "a minute ago"
