"""A command of tierctl that waits in its middle for ever: nobody reads its progress, which has no room any more."""
import fcntl
import os
import subprocess

from waiting import wait_until

TIERCTL = os.environ["TIERCTL"]


class Stuck:
    """may_end: it may be over before it is seen to have begun."""

    def __init__(self, *arguments, has_begun, may_end=False):
        self.output, pipe = os.pipe()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(pipe, False)
        try:
            while True:
                os.write(pipe, b"x" * 64)
        except BlockingIOError:
            os.set_blocking(pipe, True)
        self.process = subprocess.Popen([TIERCTL, *arguments, "--json"], stdout=pipe, stderr=subprocess.PIPE, text=True)
        os.close(pipe)
        wait_until(lambda: has_begun() or self.process.poll() is not None)
        assert may_end or self.process.poll() is None, self.process.communicate()[1]

    def go_on(self):
        """Returns how it ends, the last line of its output, and what it says of errors."""
        with open(self.output, encoding="utf-8") as output:
            last = output.read().splitlines()[-1]
        message = self.process.communicate()[1]
        return self.process.returncode, last, message

    def end(self, number):
        self.process.send_signal(number)
        assert self.process.wait() == -number
        self.process.stderr.close()
        os.close(self.output)
