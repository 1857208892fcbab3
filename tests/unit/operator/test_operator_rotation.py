"""The rotation of the certificate authority: its phases, what each waits for, and what is seen."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from tests.support.operator_faults import Killed
from tests.support.operator_world import cluster_resource, pool_resource
from tests.support.rotation_world import AUTHORITY, CERTIFICATES, TO_CLIENTS, RotationWorld
from tests.unit.operator.test_operator_plan_properties import reach
from waltz_operator.core.authority import Holder, RotationPhase
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.preview import Ending, preview
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import (
    ClusterPlan,
    DeleteObject,
    IssueCertificates,
    RotateAuthority,
)
from waltz_operator.shell.certificates import make_authority

_NOW = "2026-01-01T12:00:00Z"
_MAX_ROUNDS = 40
_OLD_PARTS = {"tls.crt", "tls.key"}
_WRITES = 10
"""Four changes of the authority's secret, and three of the secrets of processes and clients."""

_STEPS = (RotationPhase.TRUST, RotationPhase.SIGN, RotationPhase.RETIRE)


def started(**spec: Any) -> RotationWorld:
    resource = cluster_resource(partitions=2, zookeeper={"managed": {"members": 1}}, **spec)
    world = RotationWorld(resource, [pool_resource(name) for name in "abc"])
    reach(world)
    world.settle()
    assert planned(world).done
    return world


def planned(world: RotationWorld) -> ClusterPlan:
    return plan(world.desired(), world.observed())


def step(world: RotationWorld) -> ClusterPlan:
    """Perform the next plan, and check the trust after each step."""
    decided = planned(world)
    for each in decided.steps:
        world.perform(each)
        world.check_trust()
    return decided


def phase(world: RotationWorld) -> RotationPhase:
    authority = world.observed().authority
    assert authority is not None
    return authority.phase


def enter(world: RotationWorld, wanted: RotationPhase) -> None:
    """Rotate until a phase has begun and its certificates are issued, but not loaded."""
    for _ in range(_MAX_ROUNDS):
        if phase(world) is wanted and not planned(world).steps:
            return
        world.let_time_pass()
        world.settle()
        while step(world).steps:
            pass
    raise AssertionError(f"not in {wanted}: {planned(world)}")


def finish(world: RotationWorld) -> list[RotationPhase]:
    """Rotate until nothing is left to do; return the phases that have begun."""
    phases = []
    for _ in range(_MAX_ROUNDS):
        world.let_time_pass()
        world.settle()
        decided = step(world)
        phases += [each.to for each in decided.steps if isinstance(each, RotateAuthority)]
        if decided.done:
            return phases
    raise AssertionError(f"the rotation has not ended: {planned(world)}")


def obstacle(world: RotationWorld) -> str:
    """Return why the rotation waits; fail if it does not wait."""
    decided = planned(world)
    assert not decided.steps
    assert decided.rotation is not None
    return decided.rotation.obstacle


def status(world: RotationWorld) -> dict[str, Any]:
    """Return the status, with the conditions by their types, and keep it in the resource."""
    observed = world.observed()
    found = cluster_status(world.desired(), observed, plan(world.desired(), observed), _NOW)
    assert world.cluster is not None
    world.cluster["status"] = found.to_json()
    return found.to_json() | {"conditions": {each.type: each for each in found.conditions}}


def test_rotation_replaces_the_authority_in_three_steps_without_a_restart() -> None:
    world = started()
    old = world.data(AUTHORITY)
    world.request_rotation("first")
    assert finish(world) == [*_STEPS, RotationPhase.SETTLED]
    new = world.data(AUTHORITY)
    assert {*new} == _OLD_PARTS
    assert not {*old.values()} & {*new.values()}
    assert world.data(CERTIFICATES)["ca.crt"] == new["tls.crt"]
    assert world.data(TO_CLIENTS)["ca.crt"] == new["tls.crt"]
    assert world.replaced == []


def test_parts_of_the_authority_are_those_of_each_phase() -> None:
    world = started()
    old = world.data(AUTHORITY)
    world.request_rotation("first")
    enter(world, RotationPhase.TRUST)
    trust = world.data(AUTHORITY)
    assert {*trust} == _OLD_PARTS | {"next.crt", "next.key"}
    assert trust["tls.key"] == old["tls.key"]
    enter(world, RotationPhase.SIGN)
    sign = world.data(AUTHORITY)
    assert {*sign} == _OLD_PARTS | {"previous.crt", "previous.key"}
    assert (sign["tls.key"], sign["previous.key"]) == (trust["next.key"], old["tls.key"])
    enter(world, RotationPhase.RETIRE)
    assert {*world.data(AUTHORITY)} == _OLD_PARTS | {"previous.crt"}, "the old key is removed"
    assert world.data(CERTIFICATES)["ca.crt"] == sign["tls.crt"]


@pytest.mark.parametrize("late", ["a-storage-0", "log-server-1"])
@pytest.mark.parametrize("at", _STEPS, ids=str)
def test_phase_waits_for_every_pod_to_present_its_certificate(at: RotationPhase, late: str) -> None:
    world = started()
    world.request_rotation("first")
    enter(world, at)
    world.let_time_pass()
    for process in world.processes():
        if process != late:
            world.load(process)
    assert obstacle(world) == f"these pods have not loaded the certificates yet: {late}"
    world.load(late)
    assert [type(each) for each in planned(world).steps] == [RotateAuthority]


@pytest.mark.parametrize("renewed", list(Holder), ids=str)
@pytest.mark.parametrize("at", [RotationPhase.TRUST, RotationPhase.SIGN])
def test_phase_gives_clients_the_time_of_the_spec(at: RotationPhase, renewed: Holder) -> None:
    """The time begins again when one of the two secrets changes."""
    world = started()
    world.request_rotation("first")
    enter(world, at)
    world.settle()
    assert obstacle(world) == "clients have 600 s to load the certificates"
    observed = world.observed()
    authority = observed.authority
    assert authority is not None
    assert authority.issued is not None
    assert authority.to_clients is not None
    ages = {holder: 0.0 if holder is renewed else 601.0 for holder in Holder}
    aged = replace(
        authority,
        issued=replace(authority.issued, age_seconds=ages[Holder.PROCESSES]),
        to_clients=replace(authority.to_clients, age_seconds=ages[Holder.CLIENTS]),
    )
    assert plan(world.desired(), replace(observed, authority=aged)).steps == ()
    assert world.cluster is not None
    world.cluster["spec"]["tls"] = {"rotationStepSeconds": 0}
    assert planned(world).steps


def test_pod_without_an_address_has_not_loaded_the_certificates() -> None:
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.TRUST)
    world.let_time_pass()
    world.settle()
    pod = world.objects[ObjectKey("Pod", "b-storage-0")]
    del pod["status"]["podIP"]
    assert "b-storage-0" in obstacle(world)
    pod["status"]["phase"] = "Failed"
    assert planned(world).steps, "a pod that has ended is not waited for"


def test_storage_of_a_pool_that_is_not_seen_has_not_loaded_the_certificates() -> None:
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.TRUST)
    world.settle()
    del world.pools["b"]
    authority = world.observed().authority
    assert authority is not None
    assert authority.issued is not None
    assert authority.issued.not_loaded == ("b-storage-0",)


def ready_for_the_next_phase(at: RotationPhase) -> RotationWorld:
    """Return a cluster whose plan begins the phase after ``at``."""
    world = started()
    world.request_rotation("first")
    if at is not RotationPhase.SETTLED:
        enter(world, at)
        world.let_time_pass()
        world.settle()
    assert [type(each) for each in planned(world).steps] == [RotateAuthority]
    return world


@pytest.mark.parametrize("at", list(RotationPhase), ids=str)
def test_phase_waits_while_a_replica_is_unhealthy(at: RotationPhase) -> None:
    world = ready_for_the_next_phase(at)
    world.down.add("b-storage-0.b-storage.logs.svc:6000")
    for _ in range(3):
        assert not [each for each in step(world).steps if isinstance(each, RotateAuthority)]
    assert "b-storage-0" in obstacle(world)
    world.down.clear()
    while not isinstance(step(world).steps[0], RotateAuthority):
        pass


@pytest.mark.parametrize("at", list(RotationPhase), ids=str)
def test_phase_waits_for_a_rolling_change(at: RotationPhase) -> None:
    world = ready_for_the_next_phase(at)
    assert world.cluster is not None
    world.cluster["spec"]["images"] = {"storage": "broken"}
    for _ in range(10):
        world.let_time_pass()
        assert not [each for each in step(world).steps if isinstance(each, RotateAuthority)]
        world.settle()
    while step(world).steps:
        pass
    assert obstacle(world) == "a rolling change is under way"
    world.cluster["spec"]["images"] = {"storage": "waltz-storage:2"}
    finish(world)
    assert phase(world) is RotationPhase.SETTLED


def test_nothing_is_rotated_while_the_replicas_are_not_observed() -> None:
    world = started()
    world.request_rotation("first")
    world.zookeeper_up = False
    while step(world).steps:
        pass
    assert obstacle(world) == "the replicas of the storages are not observed"
    world.zookeeper_up = True
    assert len(finish(world)) == 4


def test_paused_cluster_is_not_rotated_and_shows_its_step() -> None:
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.TRUST)
    world.let_time_pass()
    world.settle()
    assert world.cluster is not None
    world.cluster["spec"]["paused"] = True
    decided = planned(world)
    assert decided.steps == ()
    assert decided.rotation is not None
    assert decided.rotation.phase is RotationPhase.TRUST
    world.cluster["spec"]["paused"] = False
    assert planned(world).steps


def test_one_value_of_the_annotation_causes_one_rotation() -> None:
    world = started()
    world.request_rotation("first")
    assert len(finish(world)) == 4
    assert finish(world) == []
    world.request_rotation("second")
    assert len(finish(world)) == 4


def test_request_during_a_rotation_begins_the_next_one_after_it() -> None:
    world = started()
    world.request_rotation("first")
    enter(world, RotationPhase.SIGN)
    world.request_rotation("second")
    assert finish(world) == [
        RotationPhase.RETIRE,
        RotationPhase.SETTLED,
        RotationPhase.TRUST,
        RotationPhase.SIGN,
        RotationPhase.RETIRE,
        RotationPhase.SETTLED,
    ]


def test_new_cluster_with_the_annotation_is_not_rotated() -> None:
    resource = cluster_resource(partitions=2, zookeeper={"managed": {"members": 1}})
    world = RotationWorld(resource, [pool_resource(name) for name in "abc"])
    world.request_rotation("of an earlier cluster")
    reach(world)
    world.settle()
    assert planned(world).done


@pytest.mark.parametrize(("days", "begins"), [(367.0, False), (365.0, True)])
def test_authority_is_rotated_before_its_certificates_outlive_it(days: float, begins: bool) -> None:
    world = started()
    observed = world.observed()
    assert observed.authority is not None
    old = replace(observed, authority=replace(observed.authority, days=days))
    decided = plan(world.desired(), old)
    assert bool(decided.steps) is begins
    if begins:
        assert isinstance(decided.steps[0], RotateAuthority)


def test_status_names_the_step_and_records_the_finished_request() -> None:
    world = started()
    assert status(world)["conditions"]["Rotating"].status == "False"
    world.request_rotation("first")
    seen = []
    for each in _STEPS:
        enter(world, each)
        found = status(world)
        rotating = found["conditions"]["Rotating"]
        assert rotating.status == "True"
        assert found["conditions"]["Healthy"].status == "True", "nothing is interrupted"
        assert found["rotatedCa"] == ""
        assert found["message"] == rotating.message
        seen.append((rotating.reason, rotating.message.partition(":")[0]))
    assert seen == [
        ("TrustingBoth", "step 1 of 3"),
        ("SigningNew", "step 2 of 3"),
        ("RetiringOld", "step 3 of 3"),
    ]
    finish(world)
    found = status(world)
    assert (found["rotatedCa"], found["message"]) == ("first", "")
    assert found["conditions"]["Rotating"].status == "False"
    world.request_rotation("second")
    enter(world, RotationPhase.TRUST)
    assert status(world)["rotatedCa"] == "first"


@pytest.mark.parametrize("write", range(1, _WRITES + 1))
def test_operator_killed_after_any_write_of_a_rotation_completes_it(write: int) -> None:
    world = started()
    world.request_rotation("first")
    world.faults.calls, world.faults.kill_at = 0, write
    kills = 0
    for _ in range(_MAX_ROUNDS):
        world.let_time_pass()
        world.settle()
        try:
            if step(world).done:
                break
        except Killed:
            kills += 1
            world.check_trust()
    assert kills == 1
    assert world.faults.calls == _WRITES
    assert {*world.data(AUTHORITY)} == _OLD_PARTS
    assert world.data(CERTIFICATES)["ca.crt"] == world.data(AUTHORITY)["tls.crt"]


@pytest.mark.parametrize("at", list(RotationPhase), ids=str)
def test_lost_secret_of_the_processes_is_issued_again_in_its_phase(at: RotationPhase) -> None:
    world = started()
    world.request_rotation("first")
    if at is not RotationPhase.SETTLED:
        enter(world, at)
    del world.objects[CERTIFICATES]
    assert IssueCertificates(renew=False) in planned(world).steps
    step(world)
    world.check_trust()
    finish(world)


@pytest.mark.parametrize("at", list(RotationPhase), ids=str)
def test_lost_secret_of_the_clients_is_issued_again_in_its_phase(at: RotationPhase) -> None:
    world = started()
    world.request_rotation("first")
    if at is not RotationPhase.SETTLED:
        enter(world, at)
    before = world.data(CERTIFICATES)
    del world.objects[TO_CLIENTS]
    assert planned(world).steps == (IssueCertificates(renew=False, holder=Holder.CLIENTS),)
    step(world)
    world.check_trust()
    assert world.data(CERTIFICATES) == before, "the certificate of the processes stays"
    finish(world)


def test_phase_waits_until_the_certificate_of_the_clients_is_issued() -> None:
    """A secret of another owner has its name, so that the operator cannot issue it."""
    world = started()
    world.request_rotation("first")
    labels = world.objects[TO_CLIENTS]["metadata"].pop("labels")
    enter(world, RotationPhase.TRUST)
    world.let_time_pass()
    world.settle()
    assert obstacle(world) == "the certificates of this step are not issued yet"
    assert "Secret log-tls-client exists already" in planned(world).problems[0]
    world.objects[TO_CLIENTS]["metadata"]["labels"] = labels
    assert step(world).steps == (IssueCertificates(renew=True, holder=Holder.CLIENTS),)
    finish(world)


@pytest.mark.parametrize(("days", "is_renewed"), [(31.0, False), (29.0, True)])
def test_certificate_of_the_clients_is_renewed_thirty_days_before_it_expires(
    days: float, is_renewed: bool
) -> None:
    world = started()
    observed = world.observed()
    authority = observed.authority
    assert authority is not None
    assert authority.to_clients is not None
    assert authority.to_clients.days == pytest.approx(365, abs=1)
    changed = replace(authority, to_clients=replace(authority.to_clients, days=days))
    steps = plan(world.desired(), replace(observed, authority=changed)).steps
    assert steps == ((IssueCertificates(renew=True, holder=Holder.CLIENTS),) if is_renewed else ())


def test_certificate_of_the_clients_of_a_lost_authority_is_issued_again() -> None:
    """A user has deleted the certificates of the processes to start with a new authority."""
    world = started()
    old = world.data(TO_CLIENTS)
    del world.objects[AUTHORITY], world.objects[CERTIFICATES]
    world.loaded.clear()
    for _ in range(2):
        for each in planned(world).steps:
            world.perform(each)
    assert world.data(TO_CLIENTS)["ca.crt"] == world.data(AUTHORITY)["tls.crt"]
    assert world.data(TO_CLIENTS)["ca.crt"] != old["ca.crt"]


@pytest.mark.parametrize("at", list(RotationPhase), ids=str)
def test_lost_authority_stops_the_rotation_with_a_problem(at: RotationPhase) -> None:
    world = started()
    world.request_rotation("first")
    if at is not RotationPhase.SETTLED:
        enter(world, at)
    del world.objects[AUTHORITY]
    decided = planned(world)
    assert "the secret log-authority is lost" in decided.problems[0]
    assert not [each for each in decided.steps if not isinstance(each, DeleteObject)]
    world.check_trust()


def test_secret_of_another_authority_is_a_problem_and_issues_nothing() -> None:
    """A backup of the secret from before a rotation has an authority that no process trusts."""
    world = started()
    before = dict(world.objects[AUTHORITY]["data"])
    world.request_rotation("first")
    finish(world)
    world.objects[AUTHORITY]["data"] = before
    decided = planned(world)
    assert decided.steps == ()
    assert "has certificates of another authority" in decided.problems[0]
    with pytest.raises(Exception, match="has changed since it was observed"):
        world.perform(IssueCertificates(renew=True))
    world.check_trust()


def test_preview_of_a_rotation_has_its_steps_and_completes() -> None:
    world = started()
    world.request_rotation("first")
    shown = preview(world.desired(), world.observed())
    assert [each.to for each in shown.steps if isinstance(each, RotateAuthority)] == [
        *_STEPS,
        RotationPhase.SETTLED,
    ]
    assert shown.ending is Ending.COMPLETE


def test_certificates_with_an_unknown_authority_in_the_bundle_are_issued_again() -> None:
    world = started()
    foreign = make_authority("another").certificate
    bundle = world.data(CERTIFICATES)["ca.crt"] + foreign
    world.objects[CERTIFICATES]["data"] |= {"ca.crt": _encoded(bundle)}
    assert IssueCertificates(renew=True) in step(world).steps
    assert foreign not in world.data(CERTIFICATES)["ca.crt"]


@pytest.mark.parametrize("part", ["ca.crt", "tls.crt"])
def test_certificates_that_cannot_be_decoded_are_issued_again(part: str) -> None:
    world = started()
    world.objects[CERTIFICATES]["data"] |= {part: _encoded(b"no certificate")}
    assert IssueCertificates(renew=True) in step(world).steps
    assert world.data(CERTIFICATES)["ca.crt"] == world.data(AUTHORITY)["tls.crt"]


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
