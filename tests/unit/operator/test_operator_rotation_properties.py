"""In any history of a rotation, all processes accept the certificates of each other.

Random histories interleave the operator, which may be killed during any write, with kubelets that
update mounted secrets late, pods that are created again, clients, users who request rotations, and
renewals of certificates.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_faults import Killed
from tests.support.rotation_world import (
    AUTHORITY,
    CERTIFICATES,
    TO_CLIENTS,
    Loaded,
    RotationWorld,
)
from tests.unit.operator.test_operator_rotation import enter, finish, planned, started
from waltz.net import TlsConfig
from waltz_operator.core.authority import Holder, RotationPhase
from waltz_operator.core.steps import IssueCertificates

Event = Callable[[RotationWorld, random.Random], None]

_EVENTS = 80


def reconcile(world: RotationWorld, dice: random.Random) -> None:
    """Let the operator plan and perform; it may be killed after each write."""
    world.faults.kill_at = world.faults.calls + dice.randrange(1, 6)
    try:
        for each in planned(world).steps:
            world.perform(each)
            world.check_trust()
    except Killed:
        pass
    world.faults.kill_at = None


def load(world: RotationWorld, dice: random.Random) -> None:
    """Let some pods load the present secret."""
    for process in world.processes():
        if dice.random() < 0.5:
            world.load(process)


def let_time_pass(world: RotationWorld, dice: random.Random) -> None:
    world.let_time_pass()


def recreate(world: RotationWorld, dice: random.Random) -> None:
    """Delete a pod of a storage; its StatefulSet creates it again."""
    world.stop_pod(dice.choice("abc") + "-storage-0")
    world.create_pods()


def start_pods(world: RotationWorld, dice: random.Random) -> None:
    """Let new pods start, and their replicas take part."""
    world.start_pods()
    world.run_servers()


def request(world: RotationWorld, dice: random.Random) -> None:
    if dice.random() < 0.2:
        world.request_rotation(str(dice.random()))


def renew(world: RotationWorld, dice: random.Random) -> None:
    """Renew a certificate, as before its end."""
    if dice.random() < 0.3:
        world.perform(IssueCertificates(renew=True, holder=dice.choice(tuple(Holder))))


EVENTS: tuple[Event, ...] = (
    *(reconcile, reconcile, reconcile, reconcile),
    *(load, load, load),
    *(start_pods, start_pods),
    let_time_pass,
    recreate,
    request,
    renew,
)


def check_history(seed: int) -> int:
    """Check the trust in a random history and the end of its rotation; return the authorities."""
    dice = random.Random(seed)
    world = started()
    world.request_rotation("first")
    authorities = {world.data(AUTHORITY)["tls.crt"]}
    for _ in range(_EVENTS):
        dice.choice(EVENTS)(world, dice)
        world.check_trust()
        authorities.add(world.data(AUTHORITY)["tls.crt"])
    finish(world)
    for secret in (CERTIFICATES, TO_CLIENTS):
        assert world.data(secret)["ca.crt"] == world.data(AUTHORITY)["tls.crt"]
    return len(authorities)


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_all_processes_accept_each_other_in_any_history(seed: int) -> None:
    check_history(seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_all_processes_accept_each_other_in_more_histories(seed: int) -> None:
    check_history(seed)


@pytest.mark.slow
def test_random_histories_rotate_the_authority() -> None:
    """Otherwise the properties above would hold for a planner that never rotates."""
    assert sum(check_history(seed) - 1 for seed in range(10)) >= 5


def write_config(loaded: Loaded, key: bytes, folder: Path) -> TlsConfig:
    folder.mkdir()
    parts = {"tls.crt": loaded.certificate, "tls.key": key, "ca.crt": loaded.authorities}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    return TlsConfig(
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        ca=folder / "ca.crt",
        server_name="log.logs.waltz",
    )


def shake_hands(listener: TlsConfig, dialer: TlsConfig) -> None:
    """Do a TLS handshake in memory. Raises ssl.SSLError if a side refuses the other."""
    listening, dialing = listener.listening_context(), dialer.dialing_context()
    assert listening is not None
    assert dialing is not None
    to_listener, to_dialer = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listening.wrap_bio(to_listener, to_dialer, server_side=True)
    client = dialing.wrap_bio(to_dialer, to_listener, server_hostname=dialer.server_name)
    pending = [client, server]
    for _ in range(10):
        for side in tuple(pending):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(side)
        if not pending:
            return
    raise AssertionError("the handshake has not ended")


def test_peers_of_neighbouring_phases_accept_each_other(tmp_path: Path) -> None:
    """With handshakes of the processes' own TLS settings, in both directions."""
    world = started()
    world.request_rotation("first")
    configs: list[TlsConfig] = []
    clients: list[TlsConfig] = []
    for phase in RotationPhase:
        if phase is not RotationPhase.SETTLED:
            enter(world, phase)
        for secret, found in ((CERTIFICATES, configs), (TO_CLIENTS, clients)):
            key, folder = world.data(secret)["tls.key"], tmp_path / f"{phase}-{secret.name}"
            found.append(write_config(world.present(secret), key, folder))
    for listeners, neighbours in zip(pairwise(configs), pairwise(clients), strict=True):
        for listener in listeners:
            for dialer in (*listeners, *neighbours):
                shake_hands(listener, dialer)
    # Without the phases between them, the first and the last refuse each other.
    for listener, dialer in ((configs[0], configs[-1]), (configs[-1], configs[0])):
        with pytest.raises(ssl.SSLError):
            shake_hands(listener, dialer)


def test_clients_cannot_pose_as_servers(tmp_path: Path) -> None:
    world = started()
    key = world.data(TO_CLIENTS)["tls.key"]
    client = write_config(world.present(TO_CLIENTS), key, tmp_path / "client")
    # A peer that verifies no name still verifies what the certificate may be used for.
    dialer = replace(client, verify_server_name=False)
    with pytest.raises(ssl.SSLError, match="purpose"):
        shake_hands(client, dialer)
