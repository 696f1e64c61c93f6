#!/usr/bin/env python3
"""What tierctl writes goes nowhere that another user has laid out: his symbolic links are refused, --force or not, last
or in the middle of a path, and so are his pipes; the caller's own, and those of a folder's owner, lead where they say."""

import json
import os
import pwd
import subprocess

from harness import Node, Person

ROOT = Person(0, 0)


class Place:
    """Folders: safe, with a file that is precious; open and sticky, which everybody may write to."""

    def __init__(self, node):
        self.node, self.folder = node, f"{node.folder}/place"
        os.mkdir(self.folder)
        os.mkdir(self.at("safe"))
        with open(self.at("safe/file"), "wb") as file:
            file.write(b"precious")
        # In neither of them a link of Alice's is the folder's owner's; in one of them the kernel may refuse it itself.
        for name, mode in ("open", 0o777), ("sticky", 0o1777):
            os.mkdir(self.at(name))
            os.chmod(self.at(name), mode)
        tensors = json.loads(ROOT.tierctl("--json", "tensors", "gpt"))
        self.read = ["read", "gpt", tensors[0]["name"]]
        self.alice = pwd.getpwuid(node.alice.uid).pw_name

    def at(self, name):
        return f"{self.folder}/{name}"

    def link(self, target, name):
        """Of Alice's."""
        self.node.alice.run(os.symlink, target, self.at(name))

    def pipe(self, name):
        self.node.alice.run(make_pipe, self.at(name))

    def writes(self, path, status=0):
        says = [f"of {self.alice}, who owns neither its folder nor this process"] if status else []
        for command in ["export", "gpt", "--force"], ["trace", "gpt", "--seconds", "1", "--force"], self.read:
            ROOT.tierctl(*command, "--output", self.at(path), status=status, says=says)

    def check(self):
        assert content(self.at("safe/file")) == b"precious", "a file was written to"
        assert os.listdir(self.at("safe")) == ["file"], f"files were made: {os.listdir(self.at('safe'))}"


def make_pipe(path):
    os.mkfifo(path)
    os.chmod(path, 0o666)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def links_of_another_user_are_refused(place):
    for folder in "open", "sticky":
        # Of the file, of one that is not there, of a folder, and by way of a link of our own.
        place.link(place.at("safe/file"), f"{folder}/last")
        place.link(place.at("safe/new"), f"{folder}/new")
        place.link(place.at("safe"), f"{folder}/middle")
        os.symlink("last", place.at(f"{folder}/own"))
        for path in "last", "new", "middle/file", "middle/new", "middle", "own":
            place.writes(f"{folder}/{path}", 1)
            place.check()
        # Without --force, too.
        output = ["--output", place.at(f"{folder}/new")]
        ROOT.tierctl("export", "gpt", *output, status=1, says=[f"{folder}/new is a symbolic link of {place.alice}"])
        ROOT.tierctl("trace", "gpt", "--seconds", "1", *output, status=1)
        place.check()


def pipes_of_another_user_are_refused(place):
    """One that somebody reads would tell him, and one that nobody reads would be waited for."""
    place.pipe("open/pipe")
    trace, pipe = ["trace", "gpt", "--seconds", "1"], place.at("open/pipe")
    for command in trace, place.read:
        ROOT.tierctl(*command, "--output", pipe, status=1, says=[f"{pipe} is a pipe of another user"])
    place.pipe("open/new.json.partial")
    says = [f"{place.at('open/new.json')}.partial is no regular file"]
    ROOT.tierctl(*trace, "--output", place.at("open/new.json"), status=1, says=says)


def another_name_of_a_file_is_replaced(place):
    """And not that file."""
    os.link(place.at("safe/file"), place.at("open/hard"))
    place.writes("open/hard")
    place.check()


def links_lead_where_they_may(place):
    os.mkdir(place.at("elsewhere"))
    os.symlink(place.at("elsewhere"), place.at("open/mine"))
    place.writes("open/mine/file")
    os.symlink("../elsewhere/other", place.at("open/relative"))
    place.writes("open/relative")
    assert os.path.isfile(place.at("elsewhere/other")), "not where the link leads to"
    # Of one who is helped by root in his own folder.
    for name in "home", "home/data":
        os.mkdir(place.at(name))
        os.chown(place.at(name), place.node.alice.uid, -1)
    place.link("data", "home/link")
    place.writes("home/link/file")
    # Of root, in root's folder, as /tmp may be one: for a user.
    os.mkdir(place.at("disk"))
    os.chmod(place.at("disk"), 0o1777)
    os.symlink("disk", place.at("tmp"))
    bob = place.node.bob
    bob.train(job="bobs")
    bob.tierctl("export", "bobs", "--output", place.at("tmp/bobs"))
    assert os.stat(place.at("disk/bobs")).st_uid == bob.uid, "not where the link leads to"


def descriptors_of_ones_own_are_written_to(place):
    command, expected = [os.environ["TIERCTL"], *place.read, "--output"], content(place.at("elsewhere/file"))
    quiet = {"stderr": subprocess.DEVNULL, "check": True}
    assert subprocess.run([*command, "/dev/stdout"], stdout=subprocess.PIPE, **quiet).stdout == expected
    with open(place.at("five"), "wb") as file:
        subprocess.run([*command, f"/dev/fd/{file.fileno()}"], pass_fds=[file.fileno()], **quiet)
    assert content(place.at("five")) == expected
    reading, writing = os.pipe()
    writer = subprocess.Popen([*command, f"/dev/fd/{writing}"], pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == expected
    assert writer.wait() == 0
    os.mkfifo(place.at("pipe"))
    writer = subprocess.Popen([*command, place.at("pipe")], stderr=subprocess.DEVNULL)
    assert content(place.at("pipe")) == expected, "a pipe of our own"
    assert writer.wait() == 0


with Node() as daemon:
    daemon.start()
    ROOT.train(job="gpt")
    layout = Place(daemon)
    links_of_another_user_are_refused(layout)
    pipes_of_another_user_are_refused(layout)
    another_name_of_a_file_is_replaced(layout)
    links_lead_where_they_may(layout)
    descriptors_of_ones_own_are_written_to(layout)
    daemon.stop()
