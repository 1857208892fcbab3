"""Test the options of the data source, and the errors for invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from waltz.metadata.zookeeper_access import OPEN_ACCESS
from waltz.net import TlsConfig
from waltz.spark.cluster_location import locate
from waltz.spark.core.option_values import OptionError, TlsOptions, ZooKeeperOptions
from waltz.spark.core.options import Edge, Positions, parse_options
from waltz.spark.writer import client_options

CLUSTER = {"zookeeper": "zk:2181"}


def avro_record(name: str, field_type: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": field_type}]}


def avro(field_type: Any) -> str:
    """Return the Avro schema of the record ``n.r`` with one field."""
    return json.dumps(avro_record("r", field_type) | {"namespace": "n"})


def test_avro_type_may_occur_twice() -> None:
    twice = json.dumps(
        avro_record("r", avro_record("q", "int"))
        | {"fields": [{"name": "a", "type": avro_record("q", "int")}, {"name": "b", "type": "q"}]}
    )
    assert parse_options(CLUSTER | {"avroSchema": twice}).avro_schema == twice


def test_options_not_given_have_their_defaults() -> None:
    options = parse_options(CLUSTER)
    assert options.cluster.zookeeper == "zk:2181"
    assert options.cluster.cluster_file is None
    assert options.cluster.root is None
    assert options.cluster.tls is None
    assert options.partitions is None
    assert options.start == Positions(Edge.EARLIEST)
    assert options.end == Positions(Edge.LATEST)
    assert options.rows_per_task == 500_000


def test_options_names_are_case_insensitive() -> None:
    options = parse_options({"CLUSTER": "c.json", "rowspertask": "7", "TLS.servername": "x"})
    assert options.cluster.cluster_file == Path("c.json")
    assert options.rows_per_task == 7
    assert options.cluster.tls == TlsOptions(server_name="x")


def test_options_tls_files_and_switch_are_parsed() -> None:
    given = {"tls.enabled": "false", "tls.certificate": "c", "tls.key": "k", "tls.ca": "a"}
    assert parse_options(CLUSTER | given).cluster.tls == TlsOptions(
        enabled=False, certificate=Path("c"), key=Path("k"), ca=Path("a")
    )


def test_options_partitions_parse_as_ids_and_ranges() -> None:
    assert parse_options(CLUSTER | {"partitions": "5, 0-2"}).partitions == (0, 1, 2, 5)


@pytest.mark.parametrize(
    ("given", "positions"),
    [
        ("latest", Positions(Edge.LATEST)),
        ("EARLIEST", Positions(Edge.EARLIEST)),
        ("{}", Positions(Edge.EARLIEST)),
        ('{"3": 17, "0": "latest"}', Positions(Edge.EARLIEST, {3: 17, 0: Edge.LATEST})),
        ('{"3": "9007199254740993"}', Positions(Edge.EARLIEST, {3: 9007199254740993})),
        (
            f'{{"clusterKey": "{UUID(int=7)}", "3": "4"}}',
            Positions(Edge.EARLIEST, {3: 4}, UUID(int=7)),
        ),
    ],
)
def test_options_starting_positions_parse_per_partition(given: str, positions: Positions) -> None:
    assert parse_options(CLUSTER | {"startingPositions": given}).start == positions


def test_options_ending_positions_default_to_latest() -> None:
    options = parse_options(CLUSTER | {"endingPositions": '{"3": 17}'})
    assert options.end == Positions(Edge.LATEST, {3: 17})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (CLUSTER | {"cluster": "c.json"}, "set either the option zookeeper"),
        ({"zookeeper": " "}, "the option zookeeper is ' ': must not be empty"),
        (CLUSTER | {"startingPosition": "latest"}, "did you mean startingPositions?"),
        (CLUSTER | {"quux": "1"}, "the waltz source has no option quux"),
        (CLUSTER | {"partitions": "0-x"}, "the option partitions is '0-x': "),
        (CLUSTER | {"rowsPerTask": "0"}, "expected a number above 0"),
        (CLUSTER | {"rowsPerTask": "many"}, "the option rowsPerTask is 'many'"),
        (CLUSTER | {"startingPositions": "newest"}, "earliest, latest, or JSON"),
        (CLUSTER | {"startingPositions": "[1]"}, "earliest, latest, or JSON"),
        (CLUSTER | {"startingPositions": '{"a": 1}'}, "'a' is not the number of a partition"),
        (CLUSTER | {"startingPositions": '{"clusterKey": 1}'}, "1 is not the key of a cluster"),
        (CLUSTER | {"endingPositions": '{"0": -1}'}, "-1 is neither a transaction id"),
        (CLUSTER | {"endingPositions": '{"0": true}'}, "True is neither a transaction id"),
        (CLUSTER | {"tls.enabled": "maybe"}, "expected true or false"),
        (CLUSTER | {"decode": "xml"}, "the option decode is 'xml': "),
        (CLUSTER | {"mode": "strict"}, "the option mode is 'strict': "),
        (CLUSTER | {"readFrom": "disks"}, "the option readFrom is 'disks': "),
        (CLUSTER | {"missingPositions": "skip"}, "the option missingPositions is 'skip': "),
        (CLUSTER | {"timeoutSeconds": "-1"}, "expected a number above 0"),
        (CLUSTER | {"maxRowsPerTrigger": "0"}, "expected a number above 0"),
        (CLUSTER | {"maxBytesPerTrigger": "1k"}, "the option maxBytesPerTrigger is '1k': "),
        (CLUSTER | {"bytesPerTask": "-4"}, "expected a number above 0"),
        (CLUSTER | {"avroSchema": "{"}, "not an Avro schema in JSON"),
        (CLUSTER | {"avroSchema": "[" * 100_000}, "not an Avro schema in JSON"),
        (CLUSTER | {"startingPositions": "[" * 100_000}, "earliest, latest, or JSON"),
        (CLUSTER | {"avroSchema": '"long"'}, "expected the schema of a record"),
        (CLUSTER | {"avroSchema": avro(["null", "r"])}, "the type n.r contains itself"),
        (CLUSTER | {"avroSchema": avro({"type": "array", "items": "n.r"})}, "contains itself"),
        (CLUSTER | {"avroSchema": avro(avro_record("q", ["null", "r"]))}, "n.r contains itself"),
    ],
)
def test_options_invalid_values_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(given)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


# ---- the connection to ZooKeeper

SECURED = {"zookeeper.tls.enabled": "true", "zookeeper.tls.ca": "ca"}


def test_options_without_zookeeper_access_connect_in_plaintext() -> None:
    assert parse_options(CLUSTER).cluster.zookeeper_access is None
    assert locate(parse_options(CLUSTER).cluster).zookeeper_access == OPEN_ACCESS


def test_options_of_zookeeper_tls_and_user_are_parsed() -> None:
    given = CLUSTER | SECURED | {"zookeeper.authentication.file": "user"}
    options = parse_options(given).cluster
    assert options.tls is None, "they do not set the TLS of connections to servers"
    assert options.zookeeper_access == ZooKeeperOptions(
        TlsOptions(enabled=True, ca=Path("ca")), Path("user")
    )
    access = locate(options).zookeeper_access
    assert access.tls == TlsConfig(ca=Path("ca"))
    assert access.credentials == Path("user")
    assert not access.by_certificate


def test_options_of_a_user_by_certificate_are_parsed() -> None:
    pair = {"zookeeper.tls.certificate": "c", "zookeeper.tls.key": "k"}
    given = CLUSTER | SECURED | pair | {"zookeeper.authentication.certificate": "true"}
    assert locate(parse_options(given).cluster).zookeeper_access.by_certificate


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"zookeeper.tls.ca": "ca"}, "no effect without zookeeper.tls.enabled"),
        ({"zookeeper.authentication.file": "user"}, "has a password that is sent to ZooKeeper"),
        (
            {"zookeeper.tls.enabled": "true", "zookeeper.authentication.file": "user"},
            "has a password that is sent to ZooKeeper",
        ),
        (
            SECURED | {"zookeeper.authentication.certificate": "true"},
            "needs zookeeper.tls.enabled and zookeeper.tls.certificate",
        ),
        (
            SECURED
            | {
                "zookeeper.authentication.file": "user",
                "zookeeper.authentication.certificate": "true",
            },
            "exclude each other",
        ),
    ],
)
def test_options_that_would_expose_or_lack_credentials_are_refused(
    given: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        parse_options(CLUSTER | given)


def test_access_is_that_of_the_option_then_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = {"access": "outside"}
    assert locate(parse_options(CLUSTER).cluster).access == "inside"
    assert locate(parse_options(CLUSTER | outside).cluster).access == "outside"
    monkeypatch.setenv("WALTZ_ZOOKEEPER", "zk:1")
    monkeypatch.setenv("WALTZ_ACCESS", "outside")
    assert locate(parse_options({}).cluster).access == "outside"
    assert locate(parse_options({"access": "inside"}).cluster).access == "inside"
    assert client_options(locate(parse_options(CLUSTER | outside).cluster)).access == "outside"
    with pytest.raises(OptionError, match="'away': expected one of inside, outside"):
        parse_options(CLUSTER | {"access": "away"})


def test_cluster_without_tls_options_is_left_to_the_servers() -> None:
    assert locate(parse_options(CLUSTER).cluster).tls is None
    given = CLUSTER | {"tls.enabled": "true"}
    assert locate(parse_options(given).cluster).tls == TlsConfig()
    assert locate(parse_options(CLUSTER | {"tls.ca": "ca"}).cluster).tls == TlsConfig(ca=Path("ca"))
