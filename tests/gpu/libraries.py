"""Libraries that programs look for when they run, where the loader does not: those of the toolkit, and those that came with PyTorch."""

import ctypes
import glob
import subprocess

# Any of its names will do.
LIBRARIES = (("libnccl.so.2",), ("libcublas.so.13", "libcublas.so.12"))
TOOLKIT = "/usr/local/cuda/lib64"


def is_found(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def folders() -> list[str]:
    """Those that $LD_LIBRARY_PATH lacks."""
    missing = [names for names in LIBRARIES if not any(map(is_found, names))]
    if not missing:
        return []
    done = subprocess.run(["python3", "-c", "import nvidia; print(*nvidia.__path__)"], capture_output=True, text=True)
    places = [TOOLKIT, *(path for package in done.stdout.split() for path in sorted(glob.glob(f"{package}/*/lib")))]
    found = [next((place for name in names for place in places if glob.glob(f"{place}/{name}")), "") for names in missing]
    return sorted({place for place in found if place})
