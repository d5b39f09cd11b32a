"""Messages on a socket: arrays as bytes, messages in pieces and in bunches, an end that closes."""

from __future__ import annotations

import pickle
import socket
import threading

import numpy as np
import pytest

from ding.envs.env_manager.wire import Channel, encode, pack_array, unpack_array


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def decoded(messages):
    return [(seq, pickle.loads(body)) for seq, body in messages]


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5], np.float32),
        np.array(3),
        np.zeros((0, 2), np.uint8),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([True, False]),
    ],
    ids=str,
)
def test_an_array_comes_back_equal_and_writable(array):
    packed = pack_array(array)
    assert len(packed) == 3
    back = unpack_array(pickle.loads(pickle.dumps(packed)))
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())
    back[...] = 0
    assert not np.shares_memory(unpack_array(packed), array)


@pytest.mark.parametrize("value", [3, None, [1], np.float32(2), np.array([None]), np.array(["a"]), np.ma.array([1])])
def test_anything_else_is_left_as_it_is(value):
    assert pack_array(value) == (value,)
    assert unpack_array((value,)) is value


def test_each_direction_has_a_socket_of_its_own():
    (source, there), (sink, here) = socket.socketpair(), socket.socketpair()
    channel = Channel(source, sink)
    assert (channel.source, channel.sink) == (source, sink)
    channel.write(encode(1, "to there"))
    there.sendall(encode(2, "from there"))
    assert decoded(Channel(here, here).read()) == [(1, "to there")]
    assert decoded(channel.read()) == [(2, "from there")]
    channel.close()
    assert (source.fileno(), sink.fileno()) == (-1, -1)
    for end in (there, here):
        end.close()


def test_messages_come_one_by_one_however_they_were_cut(ends):
    ours, theirs = ends
    theirs.setblocking(False)
    channel = Channel(theirs, theirs)
    data = encode(1, "first") + encode(2, {"second": 2}) + encode(2**40, [3])
    found = []
    for cut in range(0, len(data), 7):
        ours.sendall(data[cut : cut + 7])
        found += decoded(channel.read())
    assert found == [(1, "first"), (2, {"second": 2}), (2**40, [3])]
    assert channel.read() is None
    ours.sendall(data)
    assert decoded(channel.read()) == found
    ours.close()
    with pytest.raises(EOFError):
        channel.read()


def test_receive_waits_for_each_message_in_turn(ends):
    ours, theirs = ends
    channel = Channel(theirs, theirs)
    sender = threading.Thread(target=ours.sendall, args=(encode(1, "a") + encode(2, "b"),))
    sender.start()
    assert [decoded([channel.receive()])[0] for _ in range(2)] == [(1, "a"), (2, "b")]
    sender.join()
    ours.close()
    with pytest.raises(EOFError):
        channel.receive()


def test_what_the_kernel_does_not_take_is_sent_later(ends):
    ours, theirs = ends
    ours.setblocking(False)
    theirs.setblocking(False)
    writer, reader = Channel(ours, ours), Channel(theirs, theirs)
    large = encode(1, bytes(3_000_000))
    assert not writer.write(large)
    assert not writer.write(encode(2, "after"))
    found = []
    while len(found) < 2:
        found += decoded(reader.read() or [])
        writer.flush()
    assert found == [(1, bytes(3_000_000)), (2, "after")]
    assert writer.flush()


def test_a_reset_connection_is_an_end():
    class Reset:
        def recv_into(self, space):
            raise ConnectionResetError

    with pytest.raises(EOFError):
        Channel(Reset(), None).read()


def test_writing_to_a_closed_end_is_an_os_error(ends):
    ours, theirs = ends
    theirs.close()
    with pytest.raises(OSError):
        Channel(ours, ours).write(encode(1, "x"))


def test_classes_that_only_one_function_knows_are_sent_by_value():
    class Local:
        answer = 42

    body = encode(1, Local())[16:]
    assert pickle.loads(body).answer == 42
