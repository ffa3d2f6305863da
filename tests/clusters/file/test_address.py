"""cluster.api, as people write it, against the address in a kubeconfig."""

import pytest

from wirespeed.clusters.kube import same_server

SERVER = "https://api.lab.example.org:6443"


@pytest.mark.parametrize(
    "told",
    [SERVER, SERVER + "/", "api.lab.example.org", "lab.example.org", "API.lab.example.org:6443",
     "http://api.lab.example.org:6443"],
)  # fmt: skip
def test_the_same(told: str) -> None:
    assert same_server(told, SERVER)


OTHERS = """
https://api.lab.example.org api.lab.example.org:443 example.org evil-api.lab.example.org x:99999
api.lab.example.org.evil.org https://api.lab.example.org@evil.org:6443 b.example.org
"""


@pytest.mark.parametrize("told", [*OTHERS.split(), ""])
def test_another(told: str) -> None:
    assert not same_server(told, SERVER)


def test_ports_by_scheme_and_literal_addresses() -> None:
    assert same_server("https://a.b", "https://a.b:443/")
    assert not same_server("https://a.b", "http://a.b")
    assert same_server("[::1]:6443", "https://[::1]:6443")
    assert same_server("10.0.0.1", "https://10.0.0.1:6443")
