import pytest

from wirespeed.watchdog.protocol import (
    Abort,
    Beat,
    Bye,
    Failed,
    Greeting,
    Hello,
    LineBuffer,
    ProtocolError,
    Record,
    Refused,
    StackRequest,
    StackText,
    Welcome,
    decode,
    encode,
    new_token,
)

MESSAGES = [
    Greeting("nonce"),
    Hello("nonce", 3, 8, "node-ä", 77),
    Welcome(),
    Refused("why\nnot"),
    Beat("running", "detail", "all_reduce", 5, 6, 0.25, 0.0),
    Record("measurement", {"a": [1, 2.5, None], "b": {"c": "✓"}}),
    Failed("ValueError: no", "Traceback\n  line\n"),
    StackRequest(),
    StackText("File x\n", [[1, "a"], [2, "b"]]),
    Abort("rank 1 died"),
    Bye(3),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_each_message_comes_back_from_its_line(message):
    line = encode(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode(line[:-1]) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"3",
        b"[]",
        b"{}",
        b'{"type":"Nothing"}',
        b'{"type":{}}',
        b'{"type":"Bye","exit_code":"0"}',
        b'{"type":"Bye","exit_code":0,"more":1}',
        b'{"type":"Abort"}',
        b"[" * 100_000,
    ],
)
def test_other_lines_are_refused(line):
    with pytest.raises(ProtocolError):
        decode(line)


def test_lines_are_cut_wherever_the_stream_breaks():
    stream = b"one\n\nthree\nfour\n"
    for cut in range(len(stream) + 1):
        buffer = LineBuffer(10)
        assert buffer.feed(stream[:cut]) + buffer.feed(stream[cut:]) == [
            *(b"one", b"", b"three", b"four")
        ]


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11 + b"\n"]])
def test_a_line_beyond_the_limit_is_refused(pieces):
    buffer = LineBuffer(10)
    with pytest.raises(ProtocolError, match="longer than 10"):
        for piece in pieces:
            buffer.feed(piece)


def test_a_line_of_exactly_the_limit_passes():
    assert LineBuffer(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]


def test_tokens_differ():
    assert len({new_token() for _ in range(100)}) == 100
