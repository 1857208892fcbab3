"""The programs of the client guide, run one after the other on a new cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reader import Reader
from waltz.local import LocalCluster

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_programs_of_client_guide_work(tmp_path: Path, cluster: LocalCluster) -> None:
    reader = Reader(tmp_path, {"127.0.0.1:2181": cluster.zookeeper}, {})
    assert reader.follow(DOCS / "client.md") > 5
