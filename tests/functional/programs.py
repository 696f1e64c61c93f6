"""Programs that tests run as who they are: tierctl, and ranks of exported.c, which write down what their state was."""
import os
import subprocess

TIERCTL = os.environ["TIERCTL"]


def tierctl(*arguments, status=0):
    """What it says; of what has failed, on its standard error."""
    done = subprocess.run([TIERCTL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


class Job:
    """A rank that trains until it is stopped, or so many steps."""

    def __init__(self, program, name, diary, large, steps=1000000, *wrong):
        words = [program, name, diary, str(large), str(steps), *wrong]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line == "training\n", line

    def is_trained(self):
        return self.process.poll() is None

    def stop(self):
        self.process.stdin.close()
        self.wait()

    def wait(self):
        """Of one that ends by itself."""
        assert self.process.wait() == 0
        self.process.stdin.close()
        self.process.stdout.close()
