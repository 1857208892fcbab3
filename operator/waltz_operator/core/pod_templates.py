"""Keep the pod template of a workload until a user asks for another one. Pure.

Operators of two versions may *render* (make) two templates from the same resources. A new template
restarts the pods. So an update of the operator, or its rollback, must not apply a new template by
itself. Each workload therefore has an annotation, the *record* (`AppliedTemplate`). It has the
template that was applied last, and the specs from which that template was rendered. As long as no
user changes a field that these pods depend on, or requests an update, the operator applies the
recorded template again, whatever it would render itself. A live object that others have edited is
still repaired: it gets the recorded template back.

The specs are recorded without the field `access`, on which no pod depends. They are compared
without the fields on which the pods of the workload do not depend. `_NOT_IN_PODS` lists these
fields. If this list lacks a field, its changes replace pods that need no change. With a list of the
compared fields, a field that the list lacks would do worse: its changes would never reach the pods.

Rules (tests/unit/operator/test_operator_pod_templates.py):

* *Rendered template.* The operator applies its own template in four cases: the workload does not
  exist; a user has changed a field that its pods depend on; the annotation `waltz.dev/update-pods`
  of the WaltzCluster has a new value; the recorded template is older than `TEMPLATE_VERSION`.
* *Kept template.* Otherwise the recorded template stays.
* *First record.* A workload without a record was made by an operator that wrote none, or its
  annotation was removed. There are three cases:

  1. This operator renders exactly the manifest that was applied last: it records its own template.
  2. It renders another one, and no spec has changed: the status of the resources shows their
     present generation (`RenderedWorkload.is_generation_observed`). The live template is recorded.
  3. It renders another one, and a spec may have changed. Then a user may have changed a field of
     the pods, so this operator applies its own template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from waltz_operator.core.names import (
    COMPONENT_LABEL,
    MANIFEST_ANNOTATION,
    POD_TEMPLATE_ANNOTATION,
    UPDATE_PODS_ANNOTATION,
    Component,
)
from waltz_operator.core.objects.manifest import Manifest, with_template
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import (
    StoragePool,
    StoragePoolSpec,
    WaltzCluster,
    WaltzClusterSpec,
)

TEMPLATE_VERSION = 0
"""The version of the templates. A recorded template of a lower version is replaced, although no
user has requested it.

Raise it by one if the templates of earlier operators endanger records or secrets, and for no other
reason: the operator then replaces all pods.
"""

_CLUSTER, _POOL = "cluster", "pool"
"""The keys of the recorded specs: of the WaltzCluster and, for storages, of the StoragePool."""

_NOT_RECORDED = "access"
"""The field of a WaltzCluster's spec that no record has. Its annotations alone may be larger than
Kubernetes allows for all annotations of an object, 256 KiB."""

_VOLUME = {"size", "storage_class_name"}
"""The fields of a volume that its pod does not depend on: only the claim has them."""

_NO_POD: dict[str, Any] = {
    "partitions": True,
    "pools": True,
    "allow_fewer_copies": True,
    "cluster_key": True,
    "paused": True,
    "network_policies": True,
    "access": True,
    "adopt": True,
}
"""The fields of a WaltzCluster's spec that no pod depends on."""

_ONLY_OF_ZOOKEEPER = {"volume", "resources", "scheduling", "heap", "on_deletion"}
"""The fields of a managed ZooKeeper that the pods of storages and servers do not depend on."""

_NOT_IN_PODS: Mapping[Component, Mapping[str, Any]] = {
    Component.ZOOKEEPER: {
        **_NO_POD,
        "servers": True,
        "tls": True,
        "images": {"server", "storage"},
        "zookeeper": {
            "managed": {"volume", "on_deletion"},
            "external": True,
            "root": True,
            "session_timeout_seconds": True,
        },
    },
    Component.STORAGE: {
        **_NO_POD,
        "servers": True,
        "tls": {"issuer_ref", "rotation_step_seconds"},
        "images": {"server", "zookeeper"},
        "zookeeper": {"managed": _ONLY_OF_ZOOKEEPER, "external": {"authentication"}},
    },
    Component.SERVER: {
        **_NO_POD,
        "servers": {"replicas"},
        "tls": {"issuer_ref", "rotation_step_seconds"},
        "images": {"storage", "zookeeper"},
        "zookeeper": {"managed": _ONLY_OF_ZOOKEEPER},
    },
}
"""The fields of a WaltzCluster's spec that the pods of a component do not depend on.

True stands for a whole field, a set or a mapping for parts of a field.
"""

_NOT_IN_PODS_OF_POOL: Mapping[str, Any] = {
    "storages": True,
    "volumes": {
        "data": True,
        "meta": _VOLUME,
        "wal": _VOLUME,
        "on_scale_down": True,
        "on_loss": True,
        "loss_delay_seconds": True,
        "on_deletion": True,
    },
}
"""The fields of a StoragePool's spec that its pods do not depend on."""


@dataclass(frozen=True, slots=True)
class AppliedTemplate:
    """The pod template of a workload, as the operator has applied it last.

    ``specs`` are the specs from which the template was rendered: ``cluster`` and, for storages,
    ``pool``. ``request`` is the value of the annotation `UPDATE_PODS_ANNOTATION` at that time,
    empty without one. ``version`` is the `TEMPLATE_VERSION` of the operator that rendered it, or 0
    for a first record.
    """

    template: Mapping[str, Any]
    specs: Mapping[str, Any]
    request: str
    version: int

    def to_json(self) -> str:
        """Return the value of the annotation."""
        fields = {
            "template": self.template,
            "specs": self.specs,
            "request": self.request,
            "version": self.version,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> AppliedTemplate:
        """Return the record in an annotation; unknown fields are ignored. Raises ValueError."""
        try:
            fields = json.loads(text)
            template, specs = fields["template"], fields["specs"]
            if not _has_containers(template) or not isinstance(specs, dict):
                raise ValueError("the record has no template, or no specs")
            return cls(
                template, specs, str(fields.get("request", "")), int(fields.get("version", 0))
            )
        except (
            KeyError,
            TypeError,
            AttributeError,
            ArithmeticError,  # The version is Infinity.
            RecursionError,  # The value has too many levels.
        ) as malformed:
            raise ValueError(str(malformed)) from malformed


@dataclass(frozen=True, slots=True)
class RenderedWorkload:
    """A workload as this operator renders it.

    ``manifest`` is rendered from ``cluster`` and ``pool``. ``pool`` is None if the pods are no
    storages.
    """

    cluster: WaltzCluster
    manifest: Manifest
    pool: StoragePool | None = None

    @property
    def template(self) -> Mapping[str, Any]:
        """The rendered template of the pods."""
        template: Mapping[str, Any] = self.manifest.body["spec"]["template"]
        return template

    @property
    def record(self) -> AppliedTemplate:
        """The record of the rendered template."""
        spec = self.cluster.spec.to_json()
        specs = {_CLUSTER: {key: each for key, each in spec.items() if key != _NOT_RECORDED}}
        if self.pool is not None:
            specs[_POOL] = self.pool.spec.to_json()
        request = self.cluster.metadata.annotations.get(UPDATE_PODS_ANNOTATION, "")
        return AppliedTemplate(self.template, specs, request, TEMPLATE_VERSION)

    @property
    def is_generation_observed(self) -> bool:
        """Whether the status of the resources shows their present generation.

        The status of a WaltzCluster gets the present generation after a plan without steps, but not
        during a pause or a change of the shape. The status of a StoragePool gets it once an
        operator has read it.
        """
        resources = (self.cluster,) if self.pool is None else (self.cluster, self.pool)
        return all(
            each.status.observed_generation == each.metadata.generation for each in resources
        )


def manifest_to_apply(workload: RenderedWorkload, live: LiveObject | None) -> Manifest:
    """Return the manifest that is to be applied: with the rendered template, or with a kept one.

    ``live`` is the workload as it exists, None if it does not.
    """
    rendered = workload.record
    kept = None if live is None else _kept_template(workload, rendered, live)
    if kept is None:
        return with_template(workload.manifest, rendered.template, rendered.to_json())
    template, record = kept
    return with_template(workload.manifest, template, record)


def is_kept(workload: RenderedWorkload, live: LiveObject) -> bool:
    """Whether a workload keeps a recorded template that differs from the rendered one.

    False without a record.
    """
    recorded = recorded_template(live)
    if recorded is None or is_same_template(recorded, workload.template):
        return False
    chosen_template = manifest_to_apply(workload, live).body["spec"]["template"]
    return not is_same_template(chosen_template, workload.template)


def recorded_template(live: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the template that the annotation of a workload records, None without a record."""
    record = _record(live)
    return None if record is None else record.template


def is_same_template(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two templates have the same fields with the same values."""
    # The JSON texts are compared, because in Python 1 equals True.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def without_null(value: Any) -> Any:
    """Return a JSON value without its null fields, at any depth.

    The API server writes such fields for times that are not set.
    """
    if isinstance(value, Mapping):
        return {key: without_null(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_null(each) for each in value]
    return value


def _kept_template(
    workload: RenderedWorkload, rendered: AppliedTemplate, live: LiveObject
) -> tuple[Mapping[str, Any], str] | None:
    """Return the template that stays, and the text of its record.

    None if the rendered template is applied instead. ``rendered`` is the record of that template.
    """
    record = _record(live)
    if record is None:
        first = _first_record(workload, rendered, live)
        return None if first is None else (first.template, first.to_json())
    is_requested = rendered.request not in ("", record.request)
    if is_requested or record.version < TEMPLATE_VERSION:
        return None
    # Equal specs need no closer comparison.
    if record.specs != rendered.specs and not _specifies_same_pods(workload, record):
        return None
    # The annotation is kept as it is: an operator of another version may write more fields.
    return record.template, live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]


def _record(live: Mapping[str, Any]) -> AppliedTemplate | None:
    """Return the record of a workload; None if it has none, or if the record is malformed."""
    text = (live["metadata"].get("annotations") or {}).get(POD_TEMPLATE_ANNOTATION)
    if text is None:
        return None
    try:
        return AppliedTemplate.from_json(text)
    except ValueError:
        return None


def _first_record(
    workload: RenderedWorkload, rendered: AppliedTemplate, live: LiveObject
) -> AppliedTemplate | None:
    """Return the first record of a workload that has none: a record of its live template.

    The result is None if the rendered template is applied instead. There are four cases: this
    operator renders the manifest that was applied last; no operator has applied the workload; the
    live template has no containers; the status of the resources does not show their present
    generation.
    """
    applied = (live["metadata"].get("annotations") or {}).get(MANIFEST_ANNOTATION)
    wanted = workload.manifest.body["metadata"]["annotations"][MANIFEST_ANNOTATION]
    template = without_null(live["spec"].get("template"))
    if applied in (None, wanted) or not _has_containers(template):
        return None
    if not workload.is_generation_observed:
        return None
    # The version of the live template is not known, so it counts as the lowest version.
    return replace(rendered, template=template, version=0)


def _specifies_same_pods(workload: RenderedWorkload, record: AppliedTemplate) -> bool:
    """Whether the recorded specs are equal to the present ones in all fields of the pods.

    The recorded specs are read by the models of this operator. A field that is newer than the
    record has its default. A field that only a newer operator knows is ignored. A value that only a
    newer operator allows counts as a change, except in a field that the pods do not depend on.
    """
    component = Component(workload.manifest.body["metadata"]["labels"][COMPONENT_LABEL])
    try:
        spec = workload.cluster.spec
        recorded = _with_present_fields(
            record.specs.get(_CLUSTER), spec.to_json(), _NOT_IN_PODS[component]
        )
        before = WaltzClusterSpec.model_validate(recorded)
        if _fields_of_pods(component, before) != _fields_of_pods(component, spec):
            return False
        if workload.pool is None:
            return True
        pool_spec = workload.pool.spec
        recorded = _with_present_fields(
            record.specs.get(_POOL), pool_spec.to_json(), _NOT_IN_PODS_OF_POOL
        )
        pool_before = StoragePoolSpec.model_validate(recorded)
        return _pool_fields_of_pods(pool_before) == _pool_fields_of_pods(pool_spec)
    except ValidationError:
        # The recorded specs have a value that this operator does not know, so the present ones
        # differ.
        return False


def _with_present_fields(
    recorded: Any, present: Mapping[str, Any], fields: Mapping[str, Any] | Set[str]
) -> Any:
    """Return a recorded spec in which ``fields`` have the values of the ``present`` spec.

    A newer operator may have recorded a value that this one does not know. If no pod depends on the
    field, the value must not make the whole spec invalid. The field is not just removed, because it
    may be required. ``fields`` are those that no pod depends on, in the form of `_NOT_IN_PODS`.
    """
    if not isinstance(recorded, dict):
        return recorded
    result = dict(recorded)
    for name in fields:
        key = to_camel(name)
        inner = fields[name] if isinstance(fields, Mapping) else True
        if isinstance(inner, Mapping | Set):
            if key in recorded:
                result[key] = _with_present_fields(recorded[key], present.get(key, {}), inner)
        elif key in present:
            result[key] = present[key]
        else:
            result.pop(key, None)
    return result


def _fields_of_pods(component: Component, spec: WaltzClusterSpec) -> dict[str, Any]:
    """Return the fields of a WaltzCluster's spec that the pods of a component depend on."""
    return spec.model_dump(mode="json", exclude=dict(_NOT_IN_PODS[component]))


def _pool_fields_of_pods(spec: StoragePoolSpec) -> dict[str, Any]:
    """Return the fields of a StoragePool's spec that its pods depend on."""
    return spec.model_dump(mode="json", exclude=dict(_NOT_IN_PODS_OF_POOL))


def _has_containers(template: object) -> bool:
    """Whether a template has containers: without them the API server refuses it."""
    spec = template.get("spec") if isinstance(template, dict) else None
    return isinstance(spec, dict) and bool(spec.get("containers"))
