"""tierd: training state that is larger than memory, and outlives its trainers.

This package is the framework-free core: a `Node` is a connection to the daemon, a `Job` this rank's membership, a
`Reader` a look at a job without a rank of it, a `Lease` a gathered unit, in host memory or in that of a GPU, a `View`
one of its tensors, by the buffer protocol and by DLPack. Methods are the calls of tierd.h, and take and give
dictionaries with the fields of its structures. Errors are `tierd.Error`, an `OSError` with an errno.

PyTorch models are trained by `tierd.torch`, with the trainers of transformers by `tierd.transformers`.
"""

from tierd._core import Error, Job, Lease, Node, Reader, StaleError, Ticket, View, version

__version__ = version()
__all__ = ["Error", "Job", "Lease", "Node", "Reader", "StaleError", "Ticket", "View", "__version__"]
