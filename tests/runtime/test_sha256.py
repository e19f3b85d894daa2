"""The executor's SHA-256 and HMAC against published vectors and Python's."""

import hashlib
import hmac
from collections.abc import Callable

import pytest

from tests.runtime.builds import EXECUTOR, MEMORY, STAND_INS, compile_native, run

Show = Callable[[bytes, bytes], tuple[str, str]]
NO_KEY = bytes(32)


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """Digest of a text, and its digest under a key."""
    sources = [STAND_INS / "show_sha256.cc", EXECUTOR / "secrets.cc"]
    program = compile_native(tmp_path_factory.mktemp("sha256") / "show", sources, *MEMORY)

    def digests(key: bytes, text: bytes) -> tuple[str, str]:
        plain, keyed = run(program, key.hex(), text.hex()).split()
        return plain, keyed

    return digests


def test_published_vectors(show: Show) -> None:
    # FIPS 180-4: the empty text, "abc", and one of two blocks.
    two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
    assert [show(NO_KEY, text)[0] for text in (b"", b"abc", two_blocks)] == [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ]
    # RFC 4231, case 2: a key is filled up with zeros, so that "Jefe" has 32 bytes, too.
    assert show(b"Jefe".ljust(32, b"\0"), b"what do ya want for nothing?")[1] == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


def test_every_length_around_a_block(show: Show) -> None:
    key = bytes(range(3, 35))
    for length in [*range(53, 67), 119, 120, 128, 1000]:
        text = bytes(i % 251 for i in range(length))
        plain, keyed = show(key, text)
        assert plain == hashlib.sha256(text).hexdigest()
        assert keyed == hmac.new(key, text, hashlib.sha256).hexdigest()
