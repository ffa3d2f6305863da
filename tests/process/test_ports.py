"""Ports that are free."""

import socket

from wirespeed.process import free_port, is_free


def test_a_free_port_is_free_until_somebody_has_it() -> None:
    port = free_port()
    assert is_free(port)
    with socket.socket() as other:
        other.bind(("", port))
        assert not is_free(port)
