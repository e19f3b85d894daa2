"""The tools that read a table's forms, as far as they are installed, start jobs that have it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from check_ship_forms import make_node
from kubernetes_builds import PATCHES, KubectlMissingError, build_job
from kubernetes_rules import pod_of
from ship_container import Outcome, is_root
from ship_readers import STARTS, Node, ReaderMissingError, Start, missing_paths

from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tuccl.shipping.forms import FORM_PATHS

pytestmark = pytest.mark.long

CASES = [(form, start) for form, starts in STARTS.items() for start in starts]


@pytest.fixture(scope="module")
def node(stand_ins: StandIns, tmp_path_factory: pytest.TempPathFactory) -> Node:
    if not is_root():
        pytest.skip("mounts need root")
    return make_node(tmp_path_factory.mktemp("node"), stand_ins)


def started(node: Node, start: Start) -> Outcome:
    try:
        return start(node)[1]
    except (ReaderMissingError, KubectlMissingError) as missing:
        pytest.skip(str(missing))


def crc_of(node: Node) -> str:
    return str(json.loads((node.shipped / "tuccl-manifest.json").read_text())["bundle_crc"])


@pytest.mark.parametrize(("form", "start"), CASES)
def test_a_job_has_the_table_by_each_form(node: Node, form: str, start: Start) -> None:
    outcome = started(node, start)
    assert outcome.code == 0, outcome.complaints
    assert outcome.has_table(node.place, crc_of(node)) is (form != "none"), outcome.log


@pytest.fixture
def damaged(node: Node) -> Iterator[Node]:
    """The node with another sum of the bundle in each form."""
    crc = crc_of(node)
    paths = [node.shipped / name for name in (*FORM_PATHS, "tuccl.env")]
    texts = {path: path.read_text() for path in paths}
    for path, text in texts.items():
        path.write_text(re.sub(rf"(TUCCL_BUNDLE_CRC\W+){crc}", r"\g<1>00000000", text))
    yield node
    for path, text in texts.items():
        path.write_text(text)


@pytest.mark.parametrize(("form", "start"), [case for case in CASES if case[0] != "none"])
def test_a_job_by_a_damaged_form_does_not_have_it(damaged: Node, form: str, start: Start) -> None:
    outcome = started(damaged, start)
    assert outcome.code != 0, form
    assert "but TUCCL_BUNDLE_CRC=" in outcome.log
    assert not outcome.has_table(damaged.place, crc_of(damaged))


def test_a_pod_waits_on_a_node_without_the_table(node: Node, tmp_path: Path) -> None:
    try:
        documents = build_job(node.shipped / "kubernetes", tmp_path / "job", PATCHES[0])
    except KubectlMissingError as missing:
        pytest.skip(str(missing))
    (job,) = (document for document in documents if document["kind"] == "Job")
    folder = tmp_path / "host" / node.place.lstrip("/")
    folder.mkdir(parents=True)
    bundle = f"bundle-{crc_of(node)}.tuccl"
    assert missing_paths(pod_of(job), tmp_path / "host") == [f"{node.place}/{bundle}"]
    (folder / bundle).touch()
    assert missing_paths(pod_of(job), tmp_path / "host") == []
