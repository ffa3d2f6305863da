"""`wirespeed serve`: what a fleet remembers, as pages for a browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import PLAIN, command, flag, option, store_option
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.site.listening import Place

_LISTEN = "127.0.0.1:9477"
_NEEDED = ("starlette", "uvicorn", "h11", "anyio")
_FILE = click.Path(path_type=Path)
_TOKEN = 'python3 -c "import secrets; print(secrets.token_hex(32))" > token && chmod 600 token'


@command(context_settings={**PLAIN, "auto_envvar_prefix": "WIRESPEED"}, told={"listen": _LISTEN})
@option("--listen HOST:PORT", f"Where; port 0: a free one; or unix:/path.  [default: {_LISTEN}]")
@option("--tls-cert FILE", "The certificate, PEM, with its chain.", _FILE)
@option("--tls-key FILE", "Its key, PEM.", _FILE)
@option("--token-file FILE", "Only who knows the token in it may read; mode 0600.", _FILE)
@option(
    "names --name HOST", "A name by which the site's proxy calls it; several times.", multiple=True
)
@flag("-q --quiet", "No messages on stderr.")
@store_option
def serve(**options: Any) -> None:
    """Pages of the stored runs: the fleet, its nodes, runs, trends, jobs that run.

    It reads what is stored and changes nothing, and serves this machine only. An address that other
    machines reach takes a token and TLS; behind the site's own proxy it listens on loopback or at a unix
    socket. /metrics is for Prometheus. It needs two packages more: pip install 'wirespeed[serve]'.

    \f
    Examples:
      wirespeed serve                                      http://{listen}/
      wirespeed serve --listen 127.0.0.1:0                 a free port
      ssh -L 9477:127.0.0.1:9477 head wirespeed serve      from elsewhere, by ssh
      wirespeed serve --listen unix:/run/wirespeed/s.sock --name fleet.example.org
      wirespeed serve --listen 10.0.0.5:9477 --tls-cert c.pem --tls-key k.pem --token-file token
    """
    try:
        from wirespeed.site.access import Access
        from wirespeed.site.framing import Site
        from wirespeed.site.listening import address_of, bound, parse_listen, tls_context
        from wirespeed.site.node_pages import warm
        from wirespeed.site.pages import site_application
        from wirespeed.site.server import Server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        raise UsageError(
            f"{error.name} is not installed, and the pages are served with it",
            expected="the extra `serve`",
            next="pip install 'wirespeed[serve]'",
        ) from error
    from wirespeed.runs.source import opened
    from wirespeed.runs.source import place as store_place

    place = parse_listen(options["listen"] or _LISTEN)
    certificate, key = options["tls_cert"], options["tls_key"]
    _refuse_open(place, options)
    token = _token(options["token_file"])
    tls = tls_context(certificate, key) if certificate else None
    names = frozenset(name.lower() for name in options["names"])
    site = Site(opened, f"runs in {store_place()}")
    warm(site)  # what cannot be read is told now, and a lost index made anew before the first page
    app = Access(
        site_application(site),
        loopback=not place.path and not place.others,
        names=names,
        token=token,
    )
    listener = bound(place)
    server = Server(app, listener, tls)
    if not options["quiet"]:
        where = address_of(listener, tls=tls is not None)
        server.on_started = lambda: click.echo(f"serving {where}; Ctrl-C ends it", err=True)
    server.serve_until_stopped()
    if place.path:
        Path(place.path).unlink(missing_ok=True)
    if not options["quiet"]:
        click.echo("stopped", err=True)


def _refuse_open(place: "Place", options: dict[str, Any]) -> None:
    """UsageError for a place that others reach without a token and TLS."""
    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise UsageError("--tls-cert and --tls-key go together", expected="both, or none")
    missing = [
        switch
        for switch, given in (
            ("--tls-cert and --tls-key", options["tls_cert"]),
            ("--token-file", options["token_file"]),
        )
        if given is None
    ]
    if place.others and missing:
        raise UsageError(
            f"--listen {options['listen']} is reachable from other machines, and runs name hosts",
            expected=f"{' and '.join(missing)} too, or an address of this machine behind your proxy",
            next=_TOKEN if "--token-file" in missing else "",
        )


def _token(file: Path | None) -> bytes | None:
    from wirespeed.node.secret import secret_in

    return None if file is None else secret_in(file, "--token-file")
