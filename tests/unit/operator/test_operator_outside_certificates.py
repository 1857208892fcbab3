"""The names of outside addresses in the certificate of the processes, with real certificates."""

from __future__ import annotations

from typing import Any

from tests.support.outside_world import NODE_PORT
from tests.support.rotation_world import AUTHORITY, CERTIFICATES, TO_CLIENTS, RotationWorld
from tests.unit.operator.test_operator_rotation import planned, started
from waltz_operator.core.authority import Holder, RotationPhase
from waltz_operator.core.steps import IssueCertificates, RotateAuthority
from waltz_operator.shell.certificates import names_of

_NAME = "log.logs.waltz"
_HOST = "node.example"


def issues(world: RotationWorld) -> list[IssueCertificates]:
    return [step for step in planned(world).steps if isinstance(step, IssueCertificates)]


def set_access(world: RotationWorld, outside: dict[str, Any] | None) -> None:
    assert world.cluster is not None
    world.cluster["spec"]["access"] = {} if outside is None else {"outside": outside}


def names(world: RotationWorld) -> frozenset[str]:
    return names_of(world.data(CERTIFICATES)["tls.crt"])


def test_certificate_of_the_processes_is_issued_again_when_the_outside_names_change() -> None:
    world = started()
    of_clients = world.data(TO_CLIENTS)
    for outside, expected in (
        (NODE_PORT, {_HOST}),
        (NODE_PORT | {"host": "192.0.2.7"}, {"192.0.2.7"}),
        (NODE_PORT | {"host": _NAME}, set()),
        (NODE_PORT, {_HOST}),
        (None, set()),
    ):
        set_access(world, outside)
        assert issues(world) == [IssueCertificates(renew=True, outside=tuple(sorted(expected)))]
        world.perform(issues(world)[0])
        world.check_trust()
        assert names(world) == {_NAME, *expected}
        assert issues(world) == []
    assert world.data(TO_CLIENTS) == of_clients


def test_new_certificate_of_a_rotation_keeps_the_outside_names() -> None:
    world = started()
    set_access(world, NODE_PORT)
    world.perform(issues(world)[0])
    version = str(world.objects[AUTHORITY]["metadata"]["resourceVersion"])
    world.perform(RotateAuthority(RotationPhase.TRUST, "first", version))
    assert {step.holder for step in issues(world)} == {*Holder}
    for step in issues(world):
        world.perform(step)
    assert names(world) == {_NAME, _HOST}
    assert names_of(world.data(TO_CLIENTS)["tls.crt"]) == {f"client.{_NAME}"}
