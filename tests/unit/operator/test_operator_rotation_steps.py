"""The writes of a rotation, which are conditional, and the handshake that sees a certificate."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource
from tests.support.rotation_world import AUTHORITY, CERTIFICATES, TO_CLIENTS, RotationWorld
from tests.unit.operator.test_operator_rotation import enter, finish, planned, started, status, step
from waltz.net import PLAINTEXT, AcceptedConnections, FrameHandler, Listener, TlsConfig
from waltz.protocol import ADMIN, CLIENT_SERVER, ProtocolSpec
from waltz_operator.core.authority import Holder, RotationPhase, phase_of
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.steps import IssueCertificates, RotateAuthority
from waltz_operator.shell.certificates import KeyPair, issue, make_authority, serial_number
from waltz_operator.shell.environment import NetworkEnvironment
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.presented_certificate import presented_serial

_NAME = "log.logs.waltz"


def version(world: RotationWorld) -> str:
    return str(world.objects[AUTHORITY]["metadata"]["resourceVersion"])


def test_step_on_an_authority_that_changed_since_its_observation_fails() -> None:
    world = started()
    observed = version(world)
    world.perform(RotateAuthority(RotationPhase.TRUST, "first", observed))
    data = dict(world.objects[AUTHORITY]["data"])
    with pytest.raises(StepFailed, match="has changed"):
        world.perform(RotateAuthority(RotationPhase.SIGN, "first", observed))
    assert world.objects[AUTHORITY]["data"] == data


@pytest.mark.parametrize("to", [RotationPhase.SIGN, RotationPhase.RETIRE, RotationPhase.SETTLED])
def test_step_that_leaves_out_a_phase_fails(to: RotationPhase) -> None:
    world = started()
    with pytest.raises(StepFailed, match="does not follow"):
        world.perform(RotateAuthority(to, "first", version(world)))
    assert phase_of(world.objects[AUTHORITY]["data"]) is RotationPhase.SETTLED


def test_step_on_a_lost_authority_fails() -> None:
    world = started()
    observed = version(world)
    del world.objects[AUTHORITY]
    with pytest.raises(StepFailed, match="the secret log-authority is lost"):
        world.perform(RotateAuthority(RotationPhase.TRUST, "first", observed))


def test_next_authority_that_cannot_be_decoded_is_not_given_to_processes() -> None:
    world = started()
    world.request_rotation("first")
    world.perform(RotateAuthority(RotationPhase.TRUST, "first", version(world)))
    world.objects[AUTHORITY]["data"]["next.crt"] = "bm90IGEgUEVN"
    with pytest.raises(StepFailed, match="the secret log-authority cannot be used"):
        world.perform(IssueCertificates(renew=True))
    world.check_trust()


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (RotationPhase.SETTLED, "tls.crt"),
        (RotationPhase.TRUST, "next.crt"),
        (RotationPhase.SIGN, "previous.crt"),
    ],
    ids=str,
)
def test_authority_that_cannot_be_decoded_is_reported_and_holds_up_nothing_else(
    at: RotationPhase, part: str
) -> None:
    world = started()
    if at is not RotationPhase.SETTLED:
        world.request_rotation("first")
        enter(world, at)
    before = world.data(CERTIFICATES)
    data = world.objects[AUTHORITY]["data"]
    original, data[part] = data[part], "bm90IGEgUEVN"
    del world.objects[TO_CLIENTS]
    world.let_time_pass()
    world.settle()
    decided = planned(world)
    assert decided.steps == (), "a step that cannot succeed would hold up others"
    (problem,) = decided.problems
    assert f"log-authority cannot be used: its part {part} is not a certificate in PEM" in problem
    assert problem.endswith("or from the certificates in ca.crt of the secret log-tls")
    is_rotating = "False" if at is RotationPhase.SETTLED else "True"
    assert status(world)["conditions"]["Rotating"].status == is_rotating
    assert status(world)["message"] == problem
    service = ObjectKey("Service", "log-server")
    del world.objects[service]
    step(world)
    assert service in world.objects, "the other objects are repaired"
    assert world.data(CERTIFICATES) == before, "no trust is lost"
    data[part] = original
    finish(world)
    assert {*world.data(AUTHORITY)} == {"tls.crt", "tls.key"}


def test_lost_certificates_wait_for_an_authority_that_can_be_decoded_and_hold_up_nothing_else() -> (
    None
):
    world = started()
    data = world.objects[AUTHORITY]["data"]
    original, data["tls.crt"] = data["tls.crt"], "bm90IGEgUEVN"
    del world.objects[CERTIFICATES]
    decided = planned(world)
    assert decided.steps == (), "a step that cannot succeed would hold up others"
    assert any("log-authority cannot be used" in problem for problem in decided.problems)
    lacking = "the secret log-tls lacks ca.crt, tls.crt, tls.key, which the operator issues when"
    assert any(lacking in reason for reason in decided.waits)
    service = ObjectKey("Service", "log-server")
    del world.objects[service]
    step(world)
    assert service in world.objects, "the other objects are repaired"
    data["tls.crt"] = original
    step(world)
    assert CERTIFICATES in world.objects
    world.check_trust()


def test_rotation_ends_if_the_previous_authority_that_is_trusted_no_more_cannot_be_decoded() -> (
    None
):
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.RETIRE)
    world.objects[AUTHORITY]["data"]["previous.crt"] = "bm90IGEgUEVN"
    assert planned(world).problems == ()
    assert finish(world) == [RotationPhase.SETTLED]
    assert {*world.data(AUTHORITY)} == {"tls.crt", "tls.key"}


class _Overtaken(FaultyKube):
    """An API server at which another operator changes ``secret`` before a secret is applied."""

    def __init__(self, world: RotationWorld, secret: ObjectKey) -> None:
        super().__init__(world, Faults())
        self._other = world
        self._secret = secret

    @override
    async def apply(self, body: Any) -> None:
        self._other.objects[self._secret]["metadata"]["resourceVersion"] = "later"
        await super().apply(body)


@pytest.mark.parametrize(
    ("holder", "secret"),
    [(Holder.PROCESSES, CERTIFICATES), (Holder.CLIENTS, TO_CLIENTS)],
)
def test_certificates_that_changed_meanwhile_are_not_overwritten(
    holder: Holder, secret: ObjectKey
) -> None:
    """A late write would bring back the certificates of an earlier step."""
    world = started()
    before = world.data(secret)
    executor = Executor(world.desired(), _Overtaken(world, secret), world.environment)
    with pytest.raises(StepFailed, match="has changed"):
        asyncio.run(executor.perform(IssueCertificates(renew=True, holder=holder)))
    assert world.data(secret) == before


def test_killed_between_its_secrets_continues_with_the_certificates() -> None:
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.TRUST)
    world.let_time_pass()
    world.settle()
    world.perform(RotateAuthority(RotationPhase.SIGN, "first", version(world)))
    assert step(world).steps == (
        IssueCertificates(renew=True),
        IssueCertificates(renew=True, holder=Holder.CLIENTS),
    )
    world.check_trust()


@pytest.mark.parametrize("secret", [CERTIFICATES, TO_CLIENTS], ids=str)
def test_killed_between_processes_and_clients_continues_with_the_missing_secret(
    secret: ObjectKey,
) -> None:
    world = started()
    world.request_rotation("first")
    world.perform(RotateAuthority(RotationPhase.TRUST, "first", version(world)))
    holder = Holder.PROCESSES if secret == CERTIFICATES else Holder.CLIENTS
    other = Holder.CLIENTS if secret == CERTIFICATES else Holder.PROCESSES
    world.perform(IssueCertificates(renew=True, holder=holder))
    assert step(world).steps == (IssueCertificates(renew=True, holder=other),)
    world.check_trust()


class _Ignore(FrameHandler):
    def received(self, bodies: list[bytes]) -> None:
        return

    def lost(self, reason: str) -> None:
        return


def config(folder: Path, authority: KeyPair) -> tuple[TlsConfig, int]:
    """Write a new certificate of ``authority``; return the settings and its serial number."""
    issued = issue(authority, _NAME)
    folder.mkdir(exist_ok=True)
    for name, content in (
        ("tls.crt", issued.certificate),
        ("tls.key", issued.key),
        ("ca.crt", authority.certificate),
    ):
        (folder / name).write_bytes(content)
    tls = TlsConfig(
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        ca=folder / "ca.crt",
        server_name=_NAME,
    )
    return tls, serial_number(issued.certificate)


async def test_handshake_shows_the_certificate_that_a_process_has_loaded(tmp_path: Path) -> None:
    authority = make_authority("log")
    dialer, _ = config(tmp_path / "operator", authority)
    tls, first = config(tmp_path / "storage", authority)
    listener = Listener(ADMIN, _Ignore, tls, AcceptedConnections())
    listener.start("127.0.0.1", 0)
    try:
        assert await presented_serial("127.0.0.1", listener.port, ADMIN, dialer, 5.0) == first
        _, second = config(tmp_path / "storage", authority)
        assert await presented_serial("127.0.0.1", listener.port, ADMIN, dialer, 5.0) == second
        refused, _ = config(tmp_path / "refused", make_authority("log"))
        (tmp_path / "refused" / "ca.crt").write_bytes(authority.certificate)
        assert await presented_serial("127.0.0.1", listener.port, ADMIN, refused, 5.0) == second
        stranger, _ = config(tmp_path / "stranger", make_authority("log"))
        assert await presented_serial("127.0.0.1", listener.port, ADMIN, stranger, 5.0) is None
    finally:
        await listener.close()
    assert await presented_serial("127.0.0.1", listener.port, ADMIN, dialer, 5.0) is None


@pytest.mark.parametrize(
    ("component", "spec"), [(Component.SERVER, CLIENT_SERVER), (Component.STORAGE, ADMIN)]
)
async def test_operator_sees_the_certificate_of_each_component_by_its_own_secret(
    tmp_path: Path, component: Component, spec: ProtocolSpec
) -> None:
    world = World(cluster_resource(), [])
    authority = make_authority("log")
    config(tmp_path / "secret", authority)
    data = {
        name: base64.b64encode((tmp_path / "secret" / name).read_bytes()).decode()
        for name in ("ca.crt", "tls.crt", "tls.key")
    }
    world.objects[CERTIFICATES] = {"metadata": {"name": "log-tls", "uid": "u"}, "data": data}
    environment = NetworkEnvironment(FaultyKube(world, Faults()), tmp_path / "operator")
    tls, serial = config(tmp_path / "process", authority)
    listener = Listener(spec, _Ignore, tls, AcceptedConnections())
    listener.start("127.0.0.1", 0)
    try:
        seen = await environment.presented_serial(
            world.desired(), component, "127.0.0.1", listener.port
        )
    finally:
        await listener.close()
    assert seen == serial


async def test_process_without_tls_presents_no_certificate() -> None:
    listener = Listener(ADMIN, _Ignore, PLAINTEXT, AcceptedConnections())
    listener.start("127.0.0.1", 0)
    try:
        assert await presented_serial("127.0.0.1", listener.port, ADMIN, PLAINTEXT, 5.0) is None
    finally:
        await listener.close()
