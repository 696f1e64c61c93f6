#!/usr/bin/env python3
"""What tierctl doctor says of GPUs and of what serves them, on machines that stand-ins play. gpus.py FOLDER-OF-STAND-INS"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

SERVING = ("GPU driver", "NVML", "NCCL")


def doctor(folder, **environment):
    """Findings by what they are of: a list of GPUs, and one of each other thing."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    inherited["LD_LIBRARY_PATH"] = folder
    run = subprocess.run([os.environ["TIERCTL"], "doctor", "--quick", "--json", "/dev/null"], env=inherited | environment,
                         stdout=subprocess.PIPE, check=False)
    assert run.returncode in (0, 1), run.returncode
    found = {}
    for finding in json.loads(run.stdout)["findings"]:
        found.setdefault(finding["what"], []).append(finding)
    return found["GPU"], *(found[what][0] for what in SERVING)


def has_library(file):
    lines = subprocess.run(["/sbin/ldconfig", "--print-cache"], stdout=subprocess.PIPE, check=True).stdout
    return file.encode() in lines


def expect(finding, kind, text):
    assert finding["finding"] == kind and text in finding["text"], finding


def main():
    [standins] = sys.argv[1:]

    gpus, driver, nvml, nccl = doctor(standins, STANDIN_GPUS="2")
    assert [gpu["number"] for gpu in gpus] == [0, 1], gpus
    assert [gpu["bus"] for gpu in gpus] == ["0000:17:00.0", "0000:18:00.0"], gpus
    expect(gpus[0], "found", "0: stand-in, 1.00 GiB, compute capability 9.0, at 0000:17:00.0; tierd is not yet tried on hardware")
    assert gpus[0]["bytes"] == 2**30
    expect(driver, "found", "13.0")
    expect(nvml, "found", "13.0.0")
    expect(nccl, "found", "2.28.3")

    # Nothing to load: what this machine has itself is left out.
    gpus, *serving = doctor("/nowhere")
    for finding, file in zip(serving, ("libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2")):
        if not has_library(file):
            expect(finding, "poor", f"{file}: cannot open shared object file")
    if not has_library("libcuda.so.1"):
        assert len(gpus) == 1 and gpus[0]["finding"] == "poor", gpus

    # Files of that name that are something else.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(f"{standins}/libnvidia-ml.so.1", f"{folder}/libcuda.so.1")
        shutil.copy(f"{standins}/libstandin_script.so", folder)
        with open(f"{folder}/libnccl.so.2", "wb") as file:
            file.write(b"no library")
        _, driver, _, nccl = doctor(folder)
        expect(driver, "poor", "libcuda.so.1 has no cuInit: it is too old, or another library of that name")
        expect(nccl, "poor", f"{folder}/libnccl.so.2: file too short")

    # A driver that does not serve: its reason, and no GPU.
    for environment, text in (
        ({"STANDIN_CUDA": "11080"}, "it is for CUDA 11.8, and tierd needs one for CUDA 12.0 or newer"),
        ({"STANDIN_GPUS": "0"}, "it does not start: the stand-in's error 100 (error 100)"),
        ({"CUDA_VISIBLE_DEVICES": ""}, 'it shows no GPU: $CUDA_VISIBLE_DEVICES is ""'),
        ({"STANDIN_FAILURES": "cuInit=999"}, "it does not start: the stand-in's error 999 (error 999)"),
        ({"STANDIN_FAILURES": "cuDriverGetVersion=3"}, "(error 3)"),
        ({"STANDIN_FAILURES": "cuInit=999,cuGetErrorString=1"}, "unknown error (error 999)"),
        ({"STANDIN_FAILURES": "cuDeviceGetCount=304"}, "GPU 0 cannot be read: the stand-in's error 304"),
        ({"STANDIN_FAILURES": "cuDeviceGet=101"}, "GPU 0 cannot be read: the stand-in's error 101"),
        ({"STANDIN_FAILURES": "cuDeviceGetName=46"}, "GPU 0 cannot be read: the stand-in's error 46"),
        ({"STANDIN_FAILURES": "cuDeviceTotalMem_v2=2"}, "GPU 0 cannot be read: the stand-in's error 2"),
        ({"STANDIN_FAILURES": "cuDeviceGetAttribute=1"}, "GPU 0 cannot be read: the stand-in's error 1"),
    ):
        gpus, driver, nvml, nccl = doctor(standins, **environment)
        expect(driver, "poor", text)
        assert all("number" not in gpu for gpu in gpus), gpus
        expect(nvml, "found", "")

    # GPUs that are there, and not as one would like them.
    gpus, driver, _, _ = doctor(standins, STANDIN_GPUS="3", CUDA_VISIBLE_DEVICES="2,0")
    assert len(gpus) == 2, gpus
    gpus, driver, _, _ = doctor(standins, STANDIN_MIG="1")
    expect(gpus[0], "found", "MIG 1g.10gb")
    gpus, driver, _, _ = doctor(standins, STANDIN_COMPUTE_MODE="2")
    expect(gpus[0], "poor", "whose compute mode lets nobody use it")
    assert gpus[0]["remedy"] == "nvidia-smi --compute-mode=0", gpus
    gpus, driver, _, _ = doctor(standins, STANDIN_DESCRIPTORS="0")
    expect(gpus[0], "found", "whose memory processes cannot share by descriptor")

    # NVML and NCCL that do not serve.
    for call, code in (("nvmlInit_v2", 9), ("nvmlSystemGetNVMLVersion", 7)):
        gpus, driver, nvml, nccl = doctor(standins, STANDIN_FAILURES=f"{call}={code}")
        expect(nvml, "poor", f"it does not start: the stand-in's error (error {code})")
        expect(driver, "found", "")
    gpus, driver, nvml, nccl = doctor(standins, STANDIN_NCCL="21805", STANDIN_GPUS="2")
    expect(nccl, "poor", "it is version 2.18.5, and tierd needs 2.19.0 or newer")
    assert nccl["remedy"] == "NVIDIA's package libnccl2", nccl
    gpus, driver, nvml, nccl = doctor(standins, STANDIN_FAILURES="ncclGetVersion=3")
    expect(nccl, "poor", "it does not start: the stand-in's error (error 3)")


if __name__ == "__main__":
    main()
