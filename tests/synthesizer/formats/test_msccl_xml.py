"""MSCCL XML: round trips, both dialects, and malformed files."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import Collective
from synthesizer.formats.msccl_xml import Dialect, read_msccl_xml, write_msccl_xml
from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.prove.verifier import verify
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.synthesizer.hand_schedules import (
    all_pairs_all_reduce,
    all_schedules,
    chain_broadcast,
    ring_reduce_scatter,
)
from tuccl.errors import FormatError

GOLDEN = Path(__file__).with_name("golden")

numbers = st.integers(-(10**17), 10**17)
refs = st.builds(ChunkRef, st.sampled_from(Buffer), numbers)
names = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"))


@st.composite
def programs(draw: st.DrawFn, rank: int) -> GpuProgram:
    lengths = draw(st.lists(st.integers(0, 3), max_size=3))
    depends = st.none() | st.builds(StepRef, st.integers(0, 3), st.integers(0, 3))
    steps = st.builds(Step, st.sampled_from(StepType), refs, refs, numbers, depends)
    blocks = tuple(
        Threadblock(
            number,
            draw(numbers),
            draw(numbers),
            draw(numbers),
            tuple(draw(st.lists(steps, min_size=length, max_size=length))),
        )
        for number, length in enumerate(lengths)
    )
    return GpuProgram(rank, draw(numbers), draw(numbers), draw(numbers), blocks)


@st.composite
def algorithms(draw: st.DrawFn) -> Algorithm:
    """Draw any value of the type, valid or not."""
    collective = draw(st.sampled_from(Collective))
    return Algorithm(
        name=draw(names),
        collective=collective,
        protocol=draw(st.sampled_from(Protocol)),
        channels=draw(numbers),
        chunks_per_loop=draw(numbers),
        in_place=draw(st.booleans()),
        out_of_place=draw(st.booleans()),
        programs=tuple(draw(programs(rank)) for rank in range(draw(st.integers(0, 3)))),
        min_bytes=draw(numbers),
        max_bytes=draw(numbers),
        root=draw(numbers) if collective.has_root else 0,
    )


@pytest.mark.long
@given(algorithms(), st.sampled_from(Dialect))
def test_what_is_written_is_read_back(a: Algorithm, dialect: Dialect) -> None:
    assert read_msccl_xml(write_msccl_xml(a, dialect)) == a


@pytest.mark.long
@given(algorithms())
def test_whatever_a_file_says_the_verifier_answers(a: Algorithm) -> None:
    verdict = verify(a)
    assert verdict.proved == (not verdict.defects)


@pytest.mark.parametrize("a", all_schedules(), ids=lambda a: f"{a.collective}-{a.ranks}")
def test_schedules_survive_the_round_trip(a: Algorithm) -> None:
    assert read_msccl_xml(write_msccl_xml(a)) == a


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_text_of_a_small_schedule(dialect: Dialect) -> None:
    text = write_msccl_xml(ring_reduce_scatter(2), dialect)
    assert text == (GOLDEN / f"reduce_scatter_{dialect}.xml").read_text()


def test_awaited_steps_and_no_others_report_that_they_are_done() -> None:
    text = write_msccl_xml(all_pairs_all_reduce(2))
    assert text.count('hasdep="1"') == 4  # per rank: the receive into scratch, and the sum
    assert (
        'type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="0" deps="1"' in text
    )


def test_no_upper_limit_is_said_as_each_runtime_understands_it() -> None:
    """microsoft/msccl takes 0 literally, and refuses it below minBytes."""
    a = replace(all_pairs_all_reduce(2), min_bytes=1024)
    assert 'minBytes="1024" maxBytes="0"' in write_msccl_xml(a, Dialect.AZURE)
    text = write_msccl_xml(a, Dialect.MICROSOFT)
    assert 'minBytes="1024" maxBytes="999999999999999999"' in text
    assert read_msccl_xml(text) == a


_WIDE = st.one_of(
    st.integers(1, (1 << 63) - 1), st.integers(10**18 - 3, 10**18 + 3), st.integers(0, 9).map(
        lambda below: (1 << 63) - 1 - below)
)  # fmt: skip


@given(_WIDE)
def test_limits_as_wide_as_the_runtimes_read_come_back(limit: int) -> None:
    a = replace(all_pairs_all_reduce(2), max_bytes=limit)
    found = read_msccl_xml(write_msccl_xml(a)).max_bytes
    assert found == (0 if limit == 10**18 - 1 else limit)


@given(st.integers(1 << 63, 10**25))
def test_limits_that_no_runtime_reads_are_refused(limit: int) -> None:
    text = write_msccl_xml(replace(all_pairs_all_reduce(2), max_bytes=7))
    with pytest.raises(FormatError, match=f"maxBytes='{limit}', which is not a whole number of 64"):
        read_msccl_xml(text.replace('maxBytes="7"', f'maxBytes="{limit}"'))


@requires_shared_data
def test_a_public_schedule_with_a_limit_of_2_to_the_60_is_read() -> None:
    path = SHARED_DATA / "public_cases" / "msccl-maxbytes.xml"
    assert read_msccl_xml(path.read_text(), path.name).max_bytes == 1 << 60


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("a", all_schedules(), ids=lambda a: f"{a.collective}-{a.ranks}")
def test_every_attribute_that_either_runtime_demands_is_written(
    a: Algorithm, dialect: Dialect
) -> None:
    """The attributes are those that both parsers require, with the runtime's collective names."""
    head = write_msccl_xml(a, dialect).splitlines()[0]
    for name in (
        *("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll"),
        *("inplace", "outofplace", "minBytes", "maxBytes"),
    ):
        assert head.count(f' {name}="') == 1
    scatter = "reduce_scatter" if dialect is Dialect.MICROSOFT else "reducescatter"
    names = {
        Collective.ALL_REDUCE: "allreduce",
        Collective.ALL_GATHER: "allgather",
        Collective.REDUCE_SCATTER: scatter,
        Collective.ALLTOALL: "alltoall",
        Collective.BROADCAST: "broadcast",
        Collective.REDUCE: "reduce",
    }
    assert f' coll="{names[a.collective]}"' in head


def test_the_root_is_written_where_there_is_one() -> None:
    assert ' root="1"' in write_msccl_xml(chain_broadcast(2, 1))
    assert "root" not in write_msccl_xml(all_pairs_all_reduce(2))


STEP = (
    '<step s="0" type="nop" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="0" depid="-1" '
    'deps="-1" hasdep="0"/>'
)
BLOCK = f'<tb id="0" send="-1" recv="-1" chan="0">{STEP}</tb>'
GPU = f'<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">{BLOCK}</gpu>'
FILE = (
    '<algo name="a" proto="LL" nchannels="1" nchunksperloop="1" ngpus="1" coll="allreduce" '
    f'inplace="1">\n{GPU}\n</algo>'
)


def test_missing_optional_attributes_get_the_runtimes_meaning() -> None:
    a = read_msccl_xml(FILE)
    assert (a.in_place, a.out_of_place, a.min_bytes, a.max_bytes) == (True, False, 0, 0)
    b = read_msccl_xml(FILE.replace('inplace="1"', 'inplace="0"'))
    assert (b.in_place, b.out_of_place) == (False, True)


def test_comments_and_elements_that_runtimes_ignore() -> None:
    text = FILE.replace("<tb", '<copy i_off="0" o_off="0"/><tb').replace("<algo", "<!-- x --><algo")
    declared = f'<?xml version="1.0" encoding="utf-16"?>{text}'
    assert read_msccl_xml(declared) == read_msccl_xml(FILE)


@pytest.mark.parametrize("spelling", ["reduce_scatter", "reducescatter"])
def test_both_spellings_of_reduce_scatter(spelling: str) -> None:
    text = FILE.replace("allreduce", spelling)
    assert read_msccl_xml(text).collective is Collective.REDUCE_SCATTER


def test_operations_without_a_postcondition_become_custom() -> None:
    assert read_msccl_xml(FILE.replace("allreduce", "scatter")).collective is Collective.CUSTOM


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (FILE, "", "f.xml:1: not well-formed XML: no element found"),
        ("</algo>", "", "f.xml:3: not well-formed XML: no element found"),
        ("<algo", "<algo algo", "f.xml:1: not well-formed XML"),
        ("<algo", "<!DOCTYPE algo []><algo", "f.xml:1: <!DOCTYPE> is not allowed"),
        (FILE, "<system/>", "f.xml:1: <system> is not an MSCCL algorithm"),
        ("allreduce", "allredcue", "f.xml:1: <algo> has coll='allredcue', must be one of"),
        ('"LL"', '"LL64"', "f.xml:1: <algo> has proto='LL64', must be one of LL, LL128, Simple"),
        (' nchannels="1"', "", "f.xml:1: <algo> has no attribute 'nchannels'"),
        ('inplace="1"', 'inplace="2"', "f.xml:1: <algo> has inplace=2, must be 0 or 1"),
        (
            'ngpus="1"',
            'ngpus="2"',
            "f.xml:1: <algo> has ngpus=2 and <gpu> elements with the ids '0'",
        ),
        (
            'ngpus="1"',
            'ngpus="one"',
            "f.xml:1: <algo> has ngpus='one', which is not a whole number",
        ),
        ('i_chunks="1"', 'i_chunks="1e3"', "f.xml:2: <gpu> has i_chunks='1e3', which is not"),
        ('i_chunks="1"', f'i_chunks="{"9" * 99}"', "f.xml:2: <gpu> has i_chunks='9999"),
        (' s="0"', ' s="1"', "f.xml:2: <step> has s=1, must be 0"),
        ('"nop"', '"ra"', "f.xml:2: <step> has type='ra', must be one of"),
        ('srcbuf="i"', 'srcbuf="x"', "f.xml:2: <step> has srcbuf='x', must be one of i, o, s"),
        ('hasdep="0"', 'hasdep="banana"', "f.xml:2: <step> has hasdep='banana', which is not"),
        ('depid="-1"', 'depid="-2"', "f.xml:2: <step> has depid=-2, must be a threadblock or -1"),
        ('depid="-1" deps="-1"', 'depid="0" deps="0"', "f.xml:2: <step> is waited for by another"),
    ],
)
def test_a_malformed_file_gets_one_line(old: str, new: str, message: str) -> None:
    text = FILE.replace(old, new, 1)
    assert text != FILE
    with pytest.raises(FormatError) as error:
        read_msccl_xml(text, "f.xml")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_text_that_is_not_unicode() -> None:
    with pytest.raises(FormatError, match=r"f\.xml: the text is not valid Unicode"):
        read_msccl_xml("\ud800", "f.xml")


@pytest.mark.long
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    text = write_msccl_xml(ring_reduce_scatter(2))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    damaged = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    with suppress(FormatError):
        verdict = verify(read_msccl_xml(damaged))
        assert verdict.proved == (not verdict.defects)


@pytest.mark.long
def test_elements_are_limited_while_they_are_read_and_strange_ones_not_kept() -> None:
    strange = FILE.replace("<gpu", "<copy/>" * 1000 + "<gpu", 1)
    assert read_msccl_xml(strange, "f.xml") == read_msccl_xml(FILE, "f.xml")
    with pytest.raises(FormatError, match=r"f.xml:\d+: more than 2,000,000 elements"):
        read_msccl_xml(FILE.replace("<gpu", "<a/>" * 2_000_000 + "<gpu", 1), "f.xml")
