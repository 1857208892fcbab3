"""Parts of clusters and pools: volumes, resources, scheduling, conditions. Pure.

A *rule* is an expression that the API server checks, with the message that a user reads if it is
false (`model`). ``RULES`` of a class has the rules about several of its fields.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from waltz_operator.core.resources.model import Model, checked, immutable, pattern_rule, rule

_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

QUANTITY_RULE = pattern_rule(
    _QUANTITY, "an amount is a number and a unit, without a space, such as 500m or 2Gi"
)

Quantity = Annotated[
    str, Field(pattern=_QUANTITY, max_length=20, json_schema_extra=checked(QUANTITY_RULE))
]
"""An amount as Kubernetes writes it: ``500m``, ``2Gi``."""

PORT_RULE = rule(
    "self >= 1024 && self <= 65535",
    "a port is from 1024 to 65535: lower ports need rights that the pods do not have",
)
"""The rule of every port."""

# ``ge`` allows ports below 1024. The rule refuses them, because a rule has a message of its own.
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra=checked(PORT_RULE))]
"""The number of a port."""

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
ObjectName = Annotated[
    str,
    Field(
        pattern=_NAME,
        max_length=63,
        json_schema_extra=checked(
            pattern_rule(
                _NAME, "the name of an object has lower-case letters, digits and hyphens only"
            )
        ),
    ),
]
"""The name of an object in the same namespace."""

_TIME = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$"
RestartTime = Annotated[
    str,
    Field(
        pattern=_TIME,
        max_length=20,
        json_schema_extra=checked(
            pattern_rule(_TIME, "restartedAt is a time in UTC, such as 2026-01-31T12:00:00Z")
        ),
    ),
]
"""The time at which a user requested a restart. A new value is a new request."""


def _without_null(value: Any) -> Any:
    """Return ``value`` without the entries of mappings that are None, at any depth."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_null(each) for each in value]
    return value


FreeForm = Annotated[
    dict[str, Any],
    AfterValidator(_without_null),
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
"""A field of the Kubernetes API that the operator passes on unchanged, except that it omits nulls.

In YAML a key without a value is null. The API server keeps it in such a field, but not in a pod, so
the pod would never be as specified.
"""


class Disposal(StrEnum):
    """What happens to volumes that are no longer used."""

    KEEP = "Keep"
    DELETE = "Delete"


class ObjectMeta(Model):
    """The fields of an object's Kubernetes metadata that the operator reads."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Volume(Model):
    """One volume of every pod."""

    size: Annotated[
        Quantity,
        Field(
            json_schema_extra=checked(
                QUANTITY_RULE,
                rule(
                    "!isQuantity(self) || quantity(self).isGreaterThan(quantity('0'))",
                    "the size of a volume must be greater than 0, such as 10Gi",
                ),
            )
        ),
    ]
    """The size of the volume, such as `10Gi`."""

    storage_class_name: Annotated[
        str,
        Field(
            max_length=253,
            json_schema_extra=immutable(
                "the class of existing volumes cannot be changed: create a new StoragePool"
            ),
        ),
    ] = ""
    """The StorageClass of the volume. If empty, the default StorageClass."""


class Resources(Model):
    """The resource requests and limits of a container."""

    requests: Annotated[dict[str, Quantity], Field(max_length=8)] = Field(default={})
    """The amounts that a node must have free for the pod, by resource: `cpu` in cores, such as
    `500m`, and `memory` in bytes, such as `2Gi`. If empty, nothing is reserved, except
    what the limits name."""

    limits: Annotated[dict[str, Quantity], Field(max_length=8)] = Field(default={})
    """The amounts that the container may use, by resource, in the units of the requests. If empty,
    there are no limits."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "self.requests.all(what, !(what in self.limits) || !isQuantity(self.requests[what]) "
            "|| !isQuantity(self.limits[what]) "
            "|| !quantity(self.requests[what]).isGreaterThan(quantity(self.limits[what])))",
            "resources.requests must not exceed resources.limits: raise the limit or lower the "
            "request",
        ),
    )


class Scheduling(Model):
    """The nodes on which pods may run."""

    zone: Annotated[str, Field(max_length=63)] = ""
    """The value of the label `topology.kubernetes.io/zone` of the nodes on which pods may run. If
    empty, pods may run in all zones."""

    node_selector: Annotated[dict[str, str], Field(max_length=32)] = Field(default_factory=dict)
    """The labels that a node must have. If empty, pods may run on all nodes."""

    tolerations: Annotated[tuple[FreeForm, ...], Field(max_length=32)] = ()
    """The taints of nodes that the pods tolerate, as in a pod's spec."""

    affinity: FreeForm = Field(default_factory=dict)
    """The affinity of the pods, as in a pod's spec. Without it, the operator prefers different
    nodes and zones for copies of the same data, by `podAntiAffinity` and `podAffinity`: each of
    these two that you set replaces the operator's."""

    priority_class_name: Annotated[str, Field(max_length=253)] = ""
    """The PriorityClass of the pods. It says which pods Kubernetes evicts first when a node lacks
    room. If empty, the default PriorityClass."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule(
            "!has(self.nodeSelector) || !('topology.kubernetes.io/zone' in self.nodeSelector)",
            "write scheduling.zone instead of a nodeSelector for topology.kubernetes.io/zone",
        ),
    )


class Condition(Model):
    """A condition in Kubernetes' common form."""

    type: Annotated[str, Field(max_length=316)]
    """The name of the condition, such as `Ready`."""

    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")]
    """Whether the condition is true: `True`, `False` or `Unknown`."""

    observed_generation: int = 0
    """The generation of the resource for which the condition was determined."""

    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """The time at which the status of the condition changed last, in UTC."""

    reason: Annotated[str, Field(max_length=1024)]
    """The reason for the status, in one word."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """The reason for the status, in sentences. It is empty if there is nothing to say."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        }
    ),
]
