#!/usr/bin/env python3
"""Opens many connections that stay silent, and one that does not: usage: idle_clients.py [--greet] COUNT"""
import resource
import sys

import frames

count = int(sys.argv[-1])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

if sys.argv[1] == "--greet":
    connections = [frames.greet() for _ in range(count - 1)]
    refused = frames.connect()
    kind, _, code, text = frames.receive(refused)
    assert kind == frames.HELLO_REPLY and code == frames.EBUSY, (kind, code)
    assert frames.is_closed(refused)
    print(text)
    frames.ping(connections[0])
    sys.exit(0)

early = frames.greet()
connections = []
for number in range(count):
    connections.append(frames.connect())
    if number % 100 == 0:
        frames.ping(frames.greet())
frames.ping(early)
late = frames.greet()
frames.ping(late)
