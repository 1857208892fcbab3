"""The resources that users write, as frozen models. The CRDs are generated from them. Pure.

``pool`` and ``cluster`` define the two kinds of resources; ``servers``, ``zookeeper``, ``adoption``
and ``outside`` define parts of a cluster, and ``parts`` the parts that both kinds use. ``model``
defines the base class of all models, and the validation rules of the API server.
"""

from waltz_operator.core.resources.adoption import ForeignGroups
from waltz_operator.core.resources.cluster import (
    ClusterStatus,
    TlsMode,
    WaltzCluster,
    WaltzClusterSpec,
)
from waltz_operator.core.resources.parts import Condition, Disposal, ObjectMeta
from waltz_operator.core.resources.pool import (
    LostVolume,
    OnLoss,
    PoolStatus,
    StoragePool,
    StoragePoolSpec,
    VolumeSizes,
)

GROUP = "waltz.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "ClusterStatus",
    "Condition",
    "Disposal",
    "ForeignGroups",
    "LostVolume",
    "ObjectMeta",
    "OnLoss",
    "PoolStatus",
    "StoragePool",
    "StoragePoolSpec",
    "TlsMode",
    "VolumeSizes",
    "WaltzCluster",
    "WaltzClusterSpec",
]
