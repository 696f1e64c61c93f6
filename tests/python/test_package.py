"""The package as it is built: importable, without what it does not need, and of the same build as the daemon."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import tierd
from conftest import TIERD, Daemon, tierctl


def test_its_version_is_that_of_the_daemon() -> None:
    said = subprocess.run([TIERD, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["tierd", tierd.__version__]


def test_it_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, tierd; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_typed() -> None:
    assert resources.files(tierd).joinpath("py.typed").is_file()


def test_a_daemon_of_the_same_build_answers(daemon: Daemon) -> None:
    said = tierctl("ping")
    assert tierd.__version__ in said


def test_it_has_all_files_of_the_source() -> None:
    source = Path(__file__).resolve().parents[2] / "client" / "python" / "tierd"
    patterns = ["**/*.py", "**/*.pyi", "**/py.typed"]
    names = {path.relative_to(source) for pattern in patterns for path in source.glob(pattern)}
    package = Path(tierd.__file__).parent
    assert names
    assert {name for name in names if not (package / name).is_file()} == set()
