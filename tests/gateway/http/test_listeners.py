"""Addresses: IPv4, IPv6, socket files, occupied and forbidden ones, before anything is served."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from colibri_cli.errors import ServerStartError
from colibri_cli.gateway.listeners import TcpAddress, UnixAddress, open_listeners
from tests.gateway.http.raw_client import RawClient
from tests.gateway.http.running_server import KEYS, RunningServer, get

BACKLOG = 128


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_several_addresses_at_once(tmp_path: Path) -> None:
    addresses = [
        TcpAddress("127.0.0.1", 0),
        TcpAddress("127.0.0.2", 0),
        UnixAddress(tmp_path / "s"),
    ]
    if has_ipv6():
        addresses.append(TcpAddress("::1", 0))
    with RunningServer(addresses=tuple(addresses)) as server:
        bound = server.server.addresses
        assert len(bound) == len(addresses)
        for address in bound:
            where = (
                str(address.path)
                if isinstance(address, UnixAddress)
                else (address.host, address.port)
            )
            with RawClient(where) as client:
                assert client.ask(get("/health")).status == 200
        peers = [record.peer for record in server.script.records]
        assert peers[:3] == ["127.0.0.1", "127.0.0.1", "unix"]
    assert not (tmp_path / "s").exists()


def test_addresses_are_shown_as_urls(tmp_path: Path) -> None:
    assert str(TcpAddress("127.0.0.1", 80)) == "http://127.0.0.1:80"
    assert str(TcpAddress("::1", 80)) == "http://[::1]:80"
    assert str(UnixAddress(tmp_path / "s")) == f"unix:{tmp_path}/s"


def test_localhost_is_every_loopback_address_on_one_port() -> None:
    listeners = open_listeners((TcpAddress("localhost", 0),), BACKLOG)
    try:
        names = [listener.address for listener in listeners]
        assert len({name.port for name in names if isinstance(name, TcpAddress)}) == 1
    finally:
        for listener in listeners:
            listener.close()


def test_an_occupied_port_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(ServerStartError) as caught,
            RunningServer(addresses=(TcpAddress("127.0.0.1", 0), TcpAddress("127.0.0.1", port))),
        ):
            pass
    assert f"http://127.0.0.1:{port} is already in use" in caught.value.message
    assert "\n" not in caught.value.message


def test_two_servers_do_not_share_a_port() -> None:
    with RunningServer() as server:
        address = TcpAddress("127.0.0.1", server.port)
        with pytest.raises(ServerStartError), RunningServer(addresses=(address,)):
            pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a b"])
def test_a_host_that_is_not_ours_is_an_error(host: str) -> None:
    with pytest.raises(ServerStartError) as caught:
        open_listeners((TcpAddress(host, 0),), BACKLOG)
    assert host in caught.value.message


def test_a_stale_socket_file_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    (listener,) = open_listeners((UnixAddress(path),), BACKLOG)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ServerStartError, match="in use"):
            open_listeners((UnixAddress(path),), BACKLOG)
        assert path.exists()
    finally:
        listener.close()


def test_another_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ServerStartError):
        open_listeners((UnixAddress(path),), BACKLOG)
    assert path.read_text() == "mine"
    with pytest.raises(ServerStartError):
        open_listeners((UnixAddress(tmp_path / ("x" * 200)),), BACKLOG)


def test_other_machines_are_let_in_only_with_a_key_or_on_demand() -> None:
    everywhere = (TcpAddress("0.0.0.0", 0),)
    with pytest.raises(ServerStartError) as caught, RunningServer(addresses=everywhere):
        pass
    assert "no API key" in caught.value.message
    assert "COLI_API_KEY" in (caught.value.hint or "")
    assert "COLI_ALLOW_INSECURE_BIND" in (caught.value.hint or "")
    with RunningServer(addresses=everywhere, keys=KEYS) as server:
        assert server.ask(get("/health")).status == 200
    with RunningServer(addresses=everywhere, may_be_exposed=True) as server:
        assert server.ask(get("/health")).status == 200


def test_connections_queue_up_before_anything_is_served() -> None:
    (listener,) = open_listeners((TcpAddress("127.0.0.1", 0),), BACKLOG)
    clients = []
    try:
        assert isinstance(listener.address, TcpAddress)
        for _ in range(BACKLOG):
            client = socket.socket()
            client.settimeout(2)
            clients.append(client)
            client.connect(("127.0.0.1", listener.address.port))
    finally:
        for client in clients:
            client.close()
        listener.close()


def test_connections_send_every_piece_at_once() -> None:
    with RunningServer() as running, running.connect() as client:
        client.ask(get("/health"))

        async def has_no_delay() -> bool:
            (connection,) = running.server.table
            transport = connection._stream._transport  # type: ignore[attr-defined]
            sock = transport.get_extra_info("socket")
            return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        assert running.call(has_no_delay())


def test_a_socket_file_that_cannot_be_is_refused_by_its_own_setting(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="cannot listen on unix:") as caught:
        open_listeners((UnixAddress(tmp_path / "nowhere" / "s"),), BACKLOG)
    assert caught.value.hint == "check --uds"
