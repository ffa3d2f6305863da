"""Templates and scripts of an HTML page: everything that is foreign is escaped, nothing is fetched."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from wirespeed.views.style import Style

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["filled", "plotly_script", "policy", "script_json", "source"]

_PLAIN = Style()
_JSON_IN_HTML = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def filled(template: str, **values: Any) -> "Markup":
    """A template of templates/ with these values."""
    from markupsafe import Markup

    # Autoescape is on: what a template gives is HTML, and safe to put into another.
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("wirespeed.views"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _clean(value: Any) -> Any:
    """Foreign text without control characters and marks that turn it around; its lines stay."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(_PLAIN.text(line) for line in value.split("\n"))
    return value


def source(name: str) -> "Markup":
    """A file of ours, as it is."""
    from markupsafe import Markup

    return Markup((files("wirespeed.views") / "templates" / name).read_text("utf-8"))


def plotly_script() -> "Markup":
    """plotly.js (MIT)."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return Markup(get_plotlyjs())


def policy(scripts: Sequence["Markup"]) -> str:
    """Content security policy: only these very scripts run, and nothing is fetched from anywhere."""
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def script_json(value: Any) -> "Markup":
    """JSON that cannot end the script element it stands in."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_JSON_IN_HTML))
