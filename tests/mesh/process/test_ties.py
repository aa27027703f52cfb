import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import psutil
import pytest

from mesh.errors import UserError
from mesh.process.ties import NO_TIES, Ties, hold_in_memory, write_places
from mesh.sockets.curve import CurveKey
from mesh.wire.hosts import HostPlace
from tests.tools.ended import has_ended

DEADLINE_S = 60.0
PLACE = HostPlace("left", "10.0.0.1", 5600, "*", 7)
CHILD = """
import sys, time
from mesh.process.ties import Ties
Ties(parent=int(sys.argv[1])).end_with_parent()
print("tied", flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys, time
command = [sys.executable, "-c", sys.argv[1], str(os.getpid())]
child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def parsed(ties):
    parser = ArgumentParser()
    Ties.add_arguments(parser)
    return Ties.of(parser.parse_args(ties.arguments()))


def test_a_child_is_told_its_ties_on_its_command_line():
    ties = Ties(Path("places.json"), 7, 123)
    assert parsed(ties) == ties
    assert ties.descriptors == (7,)
    assert NO_TIES.arguments() == ()
    assert parsed(NO_TIES) == NO_TIES


def test_a_key_in_memory_is_read_as_often_as_somebody_asks():
    key = CurveKey.make()
    descriptor = hold_in_memory(key)
    try:
        ties = Ties(key_descriptor=descriptor)
        assert ties.read_key(None) == ties.read_key(None) == key
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_places_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "places.json"
    write_places(file, [PLACE])
    assert Ties(file).read_places() == [PLACE]
    assert NO_TIES.read_places() is None


@pytest.mark.parametrize("text", ["", "[", '[{"name": "left"}]', '[{"name": "l", "base_port": 0}]'])
def test_a_file_that_does_not_say_where_hosts_are_is_one_line(tmp_path, text):
    file = tmp_path / "places.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"places.json: cannot tell where hosts are"):
        Ties(file).read_places()


def test_a_process_in_a_session_of_its_own_ends_with_its_parent_however_that_ends():
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: has_ended(child))


def wait_until(holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
