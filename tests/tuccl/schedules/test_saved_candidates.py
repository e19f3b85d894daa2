from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from tests.sketches.machines import cluster
from tuccl.errors import WorkspaceError
from tuccl.schedules.candidates import Candidate, make_candidates
from tuccl.schedules.saved_candidates import load_candidates, save_candidates


@pytest.fixture(scope="module")
def sketches() -> tuple[Sketch, ...]:
    return sketch_candidates(cluster(1, 4, 1))


@pytest.fixture(scope="module")
def candidates(sketches: tuple[Sketch, ...]) -> tuple[Candidate, ...]:
    return make_candidates(Collective.ALL_REDUCE, sketches, sketches[0], (1 << 10, 1 << 28), 5.0)


def test_saved_candidates_are_read_back_equal(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    assert load_candidates(tmp_path, sketches) == candidates


def test_without_an_index_there_are_none_yet(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    (tmp_path / "index.json").unlink()
    assert load_candidates(tmp_path, sketches) is None


def test_a_changed_schedule_file_is_refused(
    candidates: tuple[Candidate, ...], sketches: tuple[Sketch, ...], tmp_path: Path
) -> None:
    save_candidates(tmp_path, candidates)
    path = tmp_path / f"{candidates[0].content_hash}.xml"
    path.write_text(path.read_text().replace('srcoff="0"', 'srcoff="1"', 1))
    with pytest.raises(WorkspaceError, match="was changed"):
        load_candidates(tmp_path, sketches)


@pytest.mark.parametrize("index", ["", "[]", '{"version": 9}', '{"version": 1}', "[" * 100_000])
def test_a_damaged_index_is_refused(
    sketches: tuple[Sketch, ...], tmp_path: Path, index: str
) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(WorkspaceError, match=r"index\.json"):
        load_candidates(tmp_path, sketches)
