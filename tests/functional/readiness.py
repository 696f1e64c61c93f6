#!/usr/bin/env python3
"""Plays the service manager for one daemon: readiness.py TIERD FLAG…"""
import os
import signal
import socket
import subprocess
import sys

import frames

manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.settimeout(30)
manager.bind(os.environ["TIERD_SOCKET"].split("/run/")[0] + "/notify")
daemon = subprocess.Popen(sys.argv[1:], env={**os.environ, "NOTIFY_SOCKET": manager.getsockname()})
try:
    ready = manager.recv(4096).decode().split("\n")
    assert "READY=1" in ready and any(line.startswith("STATUS=listening at ") for line in ready), ready
    frames.ping(frames.greet())
    daemon.send_signal(signal.SIGTERM)
    stopping = manager.recv(4096).decode().split("\n")
    assert "STOPPING=1" in stopping, stopping
    assert daemon.wait(30) == 0
finally:
    daemon.kill()
    daemon.wait()
