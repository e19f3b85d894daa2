import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.table import COMMUNICATOR_VARIABLES
from tuccl.errors import InputFileError, UsageError
from tuccl.measuring.engines.nccl_variables import OF_NO_CALL, OVERRULING
from tuccl.search.trials.catalogue import (
    Place,
    Variable,
    axis_knobs,
    read_catalogue,
    shipped_catalogue,
    varied,
)
from tuccl.search.trials.config import AXIS_VARIABLES
from tuccl.search.trials.space import BUILTIN_SCOPES, SPELLED_OUT, Knob, Scope, ascending

HEAD = 'format = "tuccl-nccl-variables"\nversion = 1\n'
VARIABLE = HEAD + '[[variable]]\nname = "NCCL_A"\nvalues = [1, 2]\n'


def test_each_variable_of_the_catalogue_says_what_it_does_risks_and_whose_word_that_is() -> None:
    catalogue = shipped_catalogue()
    for each in catalogue.variables:
        assert each.does.endswith(".")
        assert each.risk.endswith(".")
        assert each.source
    names = [name for each in catalogue.variables for name in each.names]
    patterns = [name for each in catalogue.refused for name in each.names]
    assert len({*names, *patterns}) == len(names) + len(patterns)
    for name in names:
        catalogue.require_varied(name, "--vary")
    assert {place for each in catalogue.variables for place in each.places} == set(Place)


def test_nccls_own_values_and_scopes_are_those_of_the_axes() -> None:
    by_name = {each.name: each for each in shipped_catalogue().variables}
    scopes = {field: by_name[name].scope for field, name in AXIS_VARIABLES.items()}
    assert scopes.items() <= BUILTIN_SCOPES.items()
    assert by_name["NCCL_NTHREADS"].own == SPELLED_OUT.nthreads
    for field, knob in zip(AXIS_VARIABLES, axis_knobs(), strict=True):
        values = [int(value[0][1]) if value else 0 for value in knob.values]
        assert tuple(values) == ascending(field, values), field


def test_nccls_own_stands_among_numbers_and_before_what_has_none() -> None:
    def values(variable: Variable) -> list[str]:
        return [dict(value).get("NCCL_A", "own") for value in variable.knob.values]

    assert values(Variable("NCCL_A", ("1", "4", "8"), own=2)) == ["1", "own", "4", "8"]
    assert values(Variable("NCCL_A", ("PIX", "SYS"))) == ["own", "PIX", "SYS"]
    together = Variable("NCCL_B", ("1",), beside=(("NCCL_A", "3"),))
    assert together.knob.values == ((), (("NCCL_A", "3"), ("NCCL_B", "1")))


def test_the_ends_come_first_then_the_middles() -> None:
    def order(count: int) -> list[int]:
        knob = Knob(((), *(((("NCCL_A", str(n)),)) for n in range(count))))
        return [int(value[0][1]) for value in knob.coarse_to_fine]

    assert order(1) == [0]
    assert order(3) == [2, 0, 1]
    assert order(5) == [4, 0, 2, 1, 3]
    assert order(9) == [8, 0, 4, 2, 6, 1, 3, 5, 7]


@given(st.integers(1, 16))
def test_every_value_is_tried_once(count: int) -> None:
    knob = Knob(((), *(((("NCCL_A", str(n)),)) for n in range(count))))
    assert sorted(knob.coarse_to_fine) == sorted(knob.values[1:])


def test_versions_are_compared_number_by_number() -> None:
    variable = Variable("NCCL_A", ("1",), since="2.9.6", places=frozenset({Place.TCP}))
    assert variable.matters({Place.TCP}, "2.28.9")
    assert not variable.matters({Place.TCP}, "2.9.5")
    assert variable.matters({Place.TCP}, "")
    assert not variable.matters({Place.ROCE}, "2.28.9")


def test_a_variable_that_nccl_has_no_more_matters_nowhere() -> None:
    variable = Variable("NCCL_A", ("1",), since="2.13", gone="2.30.7")
    assert [variable.matters((), nccl) for nccl in ("2.12.9", "2.13", "2.30.4", "")] == [
        False,
        True,
        True,
        True,
    ]
    assert not variable.matters((), "2.30.7")
    assert variable.lacks("2.31.0") == "went with 2.30.7"
    found = varied("NCCL_SHM_USE_CUDA_MEMCPY=1", shipped_catalogue(), "--vary")
    assert found.gone == "2.30.7"


def test_a_variable_of_the_catalogue_keeps_what_is_known_of_it() -> None:
    found = varied("NCCL_SOCKET_NTHREADS=2,4", shipped_catalogue(), "--vary")
    assert found.values == ("2", "4")
    assert found.names == ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    assert found.places == frozenset(), "who names it wants it tried here"
    sockets = varied("NCCL_NSOCKS_PERTHREAD=2,4", shipped_catalogue(), "--vary")
    assert sockets.beside == (("NCCL_SOCKET_NTHREADS", "1"),), "without threads there are none"
    assert varied("NCCL_SITES_OWN=1", shipped_catalogue(), "--vary").beside == ()


@pytest.mark.parametrize(
    "name",
    [
        *OVERRULING,
        *OF_NO_CALL,
        "NCCL_DEBUG_FILE",
        "NCCL_PROFILER_PLUGIN",
        "NCCL_TOPO_DUMP_FILE",
        "NCCL_IB_DISABLE",
        "NCCL_MNNVL_ENABLE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_CTA_POLICY",
        "NCCL_RMA_PROXY_DUMP_SIGNAL",
        "NCCL_RUN_DIAGNOSTICS",
    ],
)
def test_what_changes_no_speed_or_what_a_call_means_is_not_varied(name: str) -> None:
    with pytest.raises(UsageError, match=f"--vary: {name} is not varied, because "):
        varied(f"{name}=0,1", shipped_catalogue(), "--vary")


def test_a_sites_own_variable_is_varied() -> None:
    assert varied("NCCL_IB_TC=41,106", shipped_catalogue(), "--vary").values == ("41", "106")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "format: Field required (and 1 more)"),
        ('format = "other"\nversion = 1\n', "format: Input should be 'tuccl-nccl-variables'"),
        (HEAD.replace("1", "2"), "version: Input should be 1"),
        ("format = ", "Invalid value"),
        (VARIABLE + "colour = 3\n", "variable.0.colour: Extra inputs are not permitted"),
        (VARIABLE + 'where = ["moon"]\n', "variable.0.where.0: Input should be 'several nodes'"),
        (VARIABLE.replace("[1, 2]", "[]"), "variable.0.values: List should have at least 1 item"),
        (VARIABLE.replace("[1, 2]", "[1.5]"), "variable.0.values.0"),
        (VARIABLE.replace("[1, 2]", '["a b"]'), "value 'a b': use letters, digits"),
        (VARIABLE.replace("[1, 2]", '["a", "a"]'), "NCCL_A: a value stands twice"),
        (VARIABLE.replace("NCCL_A", "PATH"), "'PATH' is not a variable of NCCL"),
        (VARIABLE + VARIABLE.removeprefix(HEAD), "NCCL_A stands twice"),
        (VARIABLE + "between = [3]\n", "NCCL_A: only channels have values between"),
        (VARIABLE.replace("[1, 2]", '["x"]') + "own = 1\n", "only whole numbers have their place"),
        (VARIABLE + 'since = "new"\n', "NCCL_A: since 'new' is not a version like 2.27"),
        (VARIABLE + 'gone = "soon"\n', "NCCL_A: gone 'soon' is not a version like 2.27"),
        (VARIABLE + "with = { B = 1 }\n", "'B' is not a variable of NCCL"),
        (
            VARIABLE.replace("NCCL_A", "NCCL_BUFFSIZE") + "first = true\n",
            "NCCL_BUFFSIZE: only further variables come first",
        ),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(InputFileError, match=re.escape(said)) as refused:
        read_catalogue(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"cannot read .*site\.toml: No such file"):
        read_catalogue(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputFileError, match="utf-8"):
        read_catalogue(tmp_path / "site.toml")


def test_the_catalogue_knows_what_communicators_can_have() -> None:
    known = {each.name: each for each in shipped_catalogue().variables}
    communicators = {n for n, each in known.items() if each.scope is Scope.COMMUNICATOR}
    assert communicators == COMMUNICATOR_VARIABLES.keys() & known.keys()
