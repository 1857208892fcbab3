"""Extend the simulated world by real certificates, which processes load at different times.

Each pod of servers and storages has loaded some version of the secret `log-tls`, each client some
version of the secret `log-tls-client`. An administrator is a client that uses the secret `log-tls`.
The operator's real executor and observer work on the secrets. A pod is observed by the certificate
that it has loaded, as by a handshake.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from typing_extensions import override

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.rolling_world import RollingWorld
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import ROTATE_CA_ANNOTATION, Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.steps import IssueCertificates, RotateAuthority, Step
from waltz_operator.shell.authority_observer import observe_authority, observe_authority_problem
from waltz_operator.shell.environment import Environment
from waltz_operator.shell.executor import Executor

AUTHORITY = ObjectKey("Secret", "log-authority")
CERTIFICATES = ObjectKey("Secret", "log-tls")
TO_CLIENTS = ObjectKey("Secret", "log-tls-client")

_ADMINISTRATOR = "administrator"
_CLIENTS = ("client-0", "client-1")
_SERVERS = 2


@dataclass(frozen=True, slots=True)
class Loaded:
    """The files of one version of the secret, in PEM."""

    certificate: bytes
    authorities: bytes


class RotationWorld(RollingWorld):
    """A world whose processes have loaded certificates."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.faults = Faults()
        self.loaded: dict[str, Loaded] = {}
        """The version of the secret that each pod and each client has loaded, by name."""
        self.now = datetime.datetime.now(datetime.UTC)
        self._kube = FaultyKube(self, self.faults)
        self.environment = cast(Environment, _Presenting(self))

    # ---- users, kubelets and clients

    def request_rotation(self, value: str) -> None:
        """Set the annotation that requests a rotation."""
        assert self.cluster is not None
        self.cluster["metadata"].setdefault("annotations", {})[ROTATE_CA_ANNOTATION] = value

    def load(self, process: str) -> None:
        """Let a pod or a client load the present version of its secret, if there is one."""
        secret = TO_CLIENTS if process in _CLIENTS else CERTIFICATES
        if secret in self.objects:
            self.loaded[process] = self.present(secret)

    def present(self, secret: ObjectKey = CERTIFICATES) -> Loaded:
        """Return the present version of a secret."""
        data = self.objects[secret]["data"]
        return Loaded(*(base64.b64decode(data[part]) for part in ("tls.crt", "ca.crt")))

    def processes(self) -> list[str]:
        """Return the pods with certificates, and the clients."""
        found = [*_CLIENTS, _ADMINISTRATOR]
        for pod in self.pods():
            metadata = pod["metadata"]
            if metadata["labels"][names.COMPONENT_LABEL] != Component.ZOOKEEPER:
                found.append(metadata["name"])
        return found

    def let_time_pass(self) -> None:
        """Let the duration of a step pass, in which every client loads its secret."""
        for client in (*_CLIENTS, _ADMINISTRATOR):
            self.load(client)
        self.now += datetime.timedelta(seconds=601)

    @override
    def settle(self) -> None:
        super().settle()
        if ObjectKey("Deployment", "log-server") in self.objects:
            for number in range(_SERVERS):
                self._create_server(f"log-server-{number}")
        for process in self.processes():
            self.load(process)

    @override
    def create_pods(self) -> None:
        before = self.processes()
        super().create_pods()
        # A pod mounts the secret as it is when the pod is created.
        for process in self.processes():
            if process not in before:
                self.load(process)
        for live in self.pods():
            live["status"]["podIP"] = live["metadata"]["name"]

    @override
    def stop_pod(self, name: str) -> None:
        self.loaded.pop(name, None)
        super().stop_pod(name)

    def _create_server(self, name: str) -> None:
        labels = names.labels("log", Component.SERVER)
        self.objects.setdefault(
            ObjectKey("Pod", name),
            {
                "metadata": {"name": name, "uid": name, "labels": labels},
                "spec": {"containers": [{"image": "waltz-server"}]},
                "status": {"containerStatuses": [{"started": True}], "podIP": name},
            },
        )

    # ---- what a test checks

    def check_trust(self) -> None:
        """Check that all processes, and new ones, accept the certificates of each other."""
        peers = dict(self.loaded)
        for secret in {CERTIFICATES, TO_CLIENTS} & {*self.objects}:
            peers[f"a new process with {secret}"] = self.present(secret)
        for (one, mine), (other, its) in product(peers.items(), repeat=2):
            assert accepts(mine, its), f"{one} refuses the certificate of {other}"

    def data(self, key: ObjectKey) -> dict[str, bytes]:
        """Return the decoded parts of a secret."""
        return {
            part: base64.b64decode(content) for part, content in self.objects[key]["data"].items()
        }

    # ---- overridden parts

    @override
    def observed(self) -> ObservedCluster:
        authority = asyncio.run(
            observe_authority(self.desired(), self.objects, self.environment, self.now)
        )
        unusable = observe_authority_problem(self.desired(), self.objects)
        return replace(super().observed(), authority=authority, authority_problem=unusable)

    @override
    def perform(self, step: Step) -> None:
        match step:
            case IssueCertificates() | RotateAuthority():
                executor = Executor(self.desired(), self._kube, self.environment)
                try:
                    asyncio.run(executor.perform(step))
                finally:
                    if isinstance(step, IssueCertificates):
                        # The executor has no clock of the test: the age begins again at 0.
                        self.now = datetime.datetime.now(datetime.UTC)
            case _:
                super().perform(step)


class _Presenting(FakeEnvironment):
    """An environment whose pods present the certificates that they have loaded."""

    def __init__(self, world: RotationWorld) -> None:
        super().__init__(StoredZnodes(world), world.faults)
        self._world = world

    @override
    async def presented_serial(
        self, desired: DesiredCluster, component: Component, host: str, port: int
    ) -> int | None:
        assert port == (6100 if component is Component.SERVER else 6001)
        loaded = self._world.loaded.get(host)
        if loaded is None:
            return None
        return x509.load_pem_x509_certificate(loaded.certificate).serial_number


@cache
def accepts(verifier: Loaded, peer: Loaded) -> bool:
    """Whether a process accepts the certificate of its peer."""
    certificate = x509.load_pem_x509_certificate(peer.certificate)
    for authority in x509.load_pem_x509_certificates(verifier.authorities):
        try:
            certificate.verify_directly_issued_by(authority)
        except InvalidSignature:
            continue
        return True
    return False
